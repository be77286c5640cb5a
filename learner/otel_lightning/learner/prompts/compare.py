"""Judge proposed variants by paired re-runs on held-out tasks, and serve the winner."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import Store, StoreLike, opened, quote_literal
from otel_lightning.instrumentation.attributes import POLICY_VERSION
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.paired import PairedComparison, compare_sides
from otel_lightning.learner.named_sql import append
from otel_lightning.learner.policy.serving import flag_document, flag_file
from otel_lightning.learner.policy.serving.promotion import promote
from otel_lightning.learner.policy.serving.settled import settle
from otel_lightning.learner.policy.serving.versions import add_policy, forget_run
from otel_lightning.learner.prompts.serving.share import (
    VariantChange,
    candidates_of,
    change_variants,
)
from otel_lightning.learner.rollout_runner.report import Report
from otel_lightning.learner.runs import Run, judged_before

REPLACED_SHARE = 0.1
"""Share of the traffic that the replaced variant keeps, at most."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The variants to compare, and the requirements on a winner."""

    key: str
    flags: Path
    candidates: Sequence[str] = ()
    """The variants to judge; by default all proposed ones that are served."""
    against: str | None = None
    """The variant to beat; by default the one with the largest share."""
    alpha: float = ALPHA
    """Error probability of the whole comparison; it is divided by the number of candidates."""
    least_gain: float = 0.0
    reward_range: tuple[float, float] | None = None
    """Least and greatest possible reward; the gate needs it unless all rewards are 0 or 1."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run that judges: another seed or number of samples is another comparison."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The gate's verdict on each candidate, and the winner."""

    run_id: str
    against: str
    verdicts: Mapping[str, PairedComparison]
    winner: str | None
    shares: Mapping[str, float] = field(default_factory=dict)
    """Share of the traffic of each variant after the decision was applied."""
    tasks: str | None = None
    """Hash of the tasks that judged."""


def arms_of(comparison: Comparison) -> list[str]:
    """Return the variants to run: the one to beat first, then the candidates.

    Raises:
        DataError: If there is no candidate, or a variant is not in the flag file.
    """
    key, flags = comparison.key, comparison.flags
    document = flag_file.read_flag_file(flags, key)
    variants = flag_document.variants(document, key)
    live = flag_document.live_shares(document, key)
    against = comparison.against or champion(flags, key)
    chosen = list(comparison.candidates) or [a for a in candidates_of(document, key) if a in live]
    chosen = [arm for arm in dict.fromkeys(chosen) if arm != against]
    for arm in (against, *chosen):
        if arm not in variants:
            raise DataError(
                f"Flag '{key}' in '{flags}' has no variant '{arm}'. It has: {', '.join(variants)}."
            )
    if not chosen and comparison.candidates:
        raise DataError(
            f"'{against}' cannot be judged against itself: it is the variant to beat, by default "
            "the one with the most traffic. Give the variant that it should beat with --against, "
            "or another --candidate."
        )
    if not chosen:
        raise DataError(
            f"Flag '{key}' in '{flags}' serves no proposed variant beside '{against}'. Propose "
            "some by the command `prompts` of lightning-learn, or name variants with --candidate."
        )
    return [against, *chosen]


def champion(flags: Path, key: str) -> str:
    """Return the variant with most traffic.

    Raises:
        DataError: If the flag serves nothing.
    """
    live = flag_document.live_shares(flag_file.read_flag_file(flags, key), key)
    if not live:
        raise DataError(f"Flag '{key}' in '{flags}' serves nothing.")
    # The name breaks ties, so that every process chooses the same variant.
    return max(live, key=lambda arm: (live[arm], arm))


def decide(comparison: Comparison, report: Report, run_id: str) -> Decision:
    """Judge each candidate against the live variant, by a run of all on the same tasks and seeds.

    Args:
        comparison: What to compare.
        report: The run of the arms; the first one is the variant to beat.
        run_id: Id of the decision.

    Raises:
        DataError: If no rollout has a reward, or one is outside the given range.
    """
    if not report.rewards:
        problems = " ".join(report.problems) or "Give a grader, or send rewards."
        raise DataError(f"No rollout of run '{report.run_id}' has a reward. {problems}")
    against, *candidates = report.arm_names
    base = report.side(against, against)
    # Bonferroni: all candidates together pass by chance with probability alpha at most.
    alpha = comparison.alpha / max(len(candidates), 1)
    verdicts = {
        arm: compare_sides(
            base,
            report.side(arm, arm),
            comparison.least_gain,
            alpha=alpha,
            reward_range=comparison.reward_range,
        )
        for arm in candidates
    }
    passed = [arm for arm in candidates if verdicts[arm].passed]
    winner = max(passed, key=lambda arm: verdicts[arm].gain) if passed else None
    return Decision(run_id, against, verdicts, winner, tasks=report.fingerprint or None)


def record_decision(store: StoreLike, comparison: Comparison, decision: Decision) -> int:
    """Record a decision that is not applied, unless it is recorded already.

    Returns:
        The number of other comparisons that the same tasks have judged before.
    """
    with opened(store) as db:
        run = _run(comparison, decision)
        others = judged_before(db, run, decision.tasks) if decision.tasks else 0
        recorded = f"SELECT 1 FROM runs WHERE run_id = {quote_literal(decision.run_id)}"
        if not db.query(recorded).num_rows:
            key, flags = comparison.key, comparison.flags
            live = flag_document.live_shares(flag_file.read_flag_file(flags, key), key)
            _record(db, comparison, decision, live)
    return others


def apply_decision(store: StoreLike, comparison: Comparison, decision: Decision) -> Decision:
    """Serve the winner instead of the variant that it beat, and retire the other candidates.

    The winner gets the traffic of the candidates and of the variant that it beat, which keeps
    `REPLACED_SHARE`. Retired variants stay in the file with weight 0. The change is recorded in
    `policies` and `promotions`; `lightning-learn rollback` undoes it. A call for the second time
    changes nothing more.

    Raises:
        ChangedError: If another program changes the flag file in between.
    """
    key, flags = comparison.key, comparison.flags
    with opened(store) as db:
        settle(db, key, flags)
        document = flag_file.read_flag_file(flags, key)
        served = (document["flags"][key].get("metadata") or {}).get(POLICY_VERSION)
        # The version in the file says whether this decision was carried out already, by a process
        # that was killed afterwards.
        if served != decision.run_id:
            live = flag_document.live_shares(document, key)
            _carry_out(db, comparison, decision, live, served)
    shares = flag_document.live_shares(flag_file.read_flag_file(flags, key), key)
    return replace(decision, shares=shares)


def _carry_out(
    db: Store,
    comparison: Comparison,
    decision: Decision,
    live: Mapping[str, float],
    served: str | None,
) -> None:
    """Record a decision, and change the flag file.

    Args:
        db: An open store.
        comparison: The flag and its file.
        decision: The winner, and the other candidates.
        live: Share of each variant in the file now.
        served: Version of the policy in the file now.
    """
    key, flags = comparison.key, comparison.flags
    losers = [arm for arm in decision.verdicts if arm != decision.winner]
    # Rows of a process that was killed before it changed the file.
    forget_run(db, decision.run_id)
    _record(db, comparison, decision, live)
    if decision.winner is not None:
        _add_policy(db, key, decision.run_id, _shares(live, decision, losers), served)
        try:
            promote(db, key, flags, version=decision.run_id)
        except OSError as error:
            raise DataError(
                f"'{decision.winner}' won and is recorded, but '{flags}' cannot be written: "
                f"{error.strerror}. Once it can, give the same command again."
            ) from error
    elif any(arm in live for arm in losers):
        change_variants(db, VariantChange(flags, key, decision.run_id, retired=losers))


def _shares(
    live: Mapping[str, float], decision: Decision, losers: Sequence[str]
) -> dict[str, float]:
    shares = {arm: share for arm, share in live.items() if arm not in losers}
    kept_share = min(REPLACED_SHARE, shares.get(decision.against, 0.0))
    # The shares of the losers, and what the variant that was beaten gives up.
    freed = 1.0 - sum(shares.values()) + shares.get(decision.against, 0.0) - kept_share
    shares[decision.against] = kept_share
    winner = str(decision.winner)
    shares[winner] = shares.get(winner, 0.0) + freed
    return {arm: share for arm, share in shares.items() if share > 0}


def _add_policy(
    store: Store, key: str, run_id: str, shares: Mapping[str, float], parent: str | None
) -> None:
    policy = Run("gate", {}, name=run_id).policy(key, shares, {})
    add_policy(store, policy | {"parent": parent, "data_fingerprint": None})


def _run(comparison: Comparison, decision: Decision) -> Run:
    config = asdict(comparison) | {"flags": str(comparison.flags)}
    return Run("gate", config, name=decision.run_id)


def _record(
    store: Store, comparison: Comparison, decision: Decision, live: Mapping[str, float]
) -> None:
    """Write the row of `runs`, with the verdict on the winner, or else on the best candidate."""
    verdicts = decision.verdicts
    best = decision.winner or max(verdicts, key=lambda arm: verdicts[arm].gain)
    gate: dict[str, Any] = asdict(verdicts[best]) | {"passed": verdicts[best].passed}
    ended = _run(comparison, decision).ended(
        outcome="passed" if decision.winner else "refused",  # `promoted` once it is
        fingerprint=decision.tasks,
        metrics={
            "winner": decision.winner,
            "against": decision.against,
            "gains": {arm: verdict.gain for arm, verdict in verdicts.items()},
        },
        gate=gate | {"live": dict(live)},
    )
    store.execute(f"DELETE FROM runs WHERE run_id = {quote_literal(decision.run_id)}")
    append(store, "runs", ended)
