"""`lightning-learn policy`: choices from the store, a learned policy to the flag file."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from otel_lightning.collector.store import Store, open_store, quote_literal
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.gate import Verdict, judge
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.policy import flag_file
from otel_lightning.learner.policy.softmax import Choices, Settings, learn, reward_model, seen_by
from otel_lightning.learner.runs import Run, fingerprint, recorded_in, with_status
from otel_lightning.learner.score import rules
from otel_lightning.learner.transitions.make import stage_rollouts
from otel_lightning.learner.transitions.rewards import outcomes, shuffle
from otel_lightning.learner.transitions.settings import Settings as TransitionSettings
from otel_lightning.learner.transitions.splits import TRAIN, split


@dataclass(frozen=True, slots=True)
class Request:
    """Which policy to learn, from what, and where to put it."""

    key: str
    flags: Path
    output: Path
    reward: str | None = None
    held_out: float = 0.3
    shuffle_rewards: int | None = None
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True)
class Learned:
    """A learned policy and what the gate said."""

    version: str
    weights: dict[str, int]
    verdict: Verdict
    learned_from: int
    without_propensity: int
    rule: str | None = None
    """What came of the rule that gave the rewards, if one did."""


def learn_policy(store: str, request: Request) -> Learned:
    """Learn a policy over the arms of a flag, and serve it if the gate lets it pass.

    Args:
        store: Location of the store.
        request: Which flag, which reward, which files.

    Returns:
        The policy and the verdict. Refused, the flag file is as it was. What fails leaves a row
        in `runs` that says why.

    Raises:
        DataError: If there is nothing to learn from, or the flag file does not fit.
        StoreError: If the store cannot be read or written.
    """
    run = Run("policy", _config(request))
    with recorded_in(store, run):
        return _learn_policy(store, request, run)


def _learn_policy(store: str, request: Request, run: Run) -> Learned:
    document = flag_file.read_flag_file(request.flags, request.key)
    with open_store(store, create=False) as opened:
        name, rule = rules.chosen(opened, request.reward)
        logged = logged_choices(opened, replace(request, reward=name))
    usable = logged.filter(pl.col("propensity").is_not_null())
    names = _arms(usable, document, request)
    probabilities, verdict = _learn(_choices(usable, names), usable, request)
    weights = flag_file.integer_weights(dict(zip(names, probabilities.tolist(), strict=True)))
    learned = Learned(
        version=run.run_id,
        weights=weights,
        verdict=verdict,
        learned_from=usable.filter(split=TRAIN).height,
        without_propensity=logged.height - usable.height,
        rule=str(rule) if rule else None,
    )
    if verdict.passed:
        changed = flag_file.with_policy(document, request.key, weights, run.run_id)
        with flag_file.staged(request.output, changed):
            _record(store, run, learned, request, fingerprint(logged))
    else:
        _record(store, run, learned, request, fingerprint(logged))
    return learned


def logged_choices(store: Store, request: Request) -> pl.DataFrame:
    """Read the first choice of each rollout for the flag, with the rollout's outcome.

    Returns:
        Columns rollout_id, task, split, arm, propensity, outcome, in the order of rollout_id.

    Raises:
        DataError: If no rollout has a reward, or nothing was chosen for the flag.
    """
    arms = read(store, __package__, "arms")
    chosen = arms.filter(key=request.key)
    if chosen.is_empty():
        known = ", ".join(sorted(set(arms["key"]))) or "none"
        raise DataError(f"The store has no choices for flag '{request.key}'. It has: {known}.")
    stage_rollouts(store, TransitionSettings(reward=request.reward))
    rewarded = outcomes(read(store, __package__, "rollout_outcomes").lazy())
    if request.shuffle_rewards is not None:
        rewarded = shuffle(rewarded, request.shuffle_rewards)
    logged = (
        chosen.lazy()
        .sort("time", "arm", nulls_last=True)
        .unique("rollout_id", keep="first", maintain_order=True)
        .join(read(store, __package__, "tasks").lazy(), on="rollout_id")
        .join(rewarded, on="rollout")
        .with_columns(split(request.held_out))
        .select("rollout_id", "split", "arm", "propensity", "outcome", task="task_hash")
        .sort("rollout_id")
        .collect()
    )
    if logged.is_empty():
        raise DataError(
            f"No rollout with a choice for flag '{request.key}' has a reward. Send "
            "'gen_ai.evaluation.result' events for these rollouts, then run this again."
        )
    _check_propensities(logged, request.key)
    return logged


def _check_propensities(logged: pl.DataFrame, key: str) -> None:
    """Refuse an arm whose propensity is never known: leaving it out would hide an arm.

    A single choice without one is left out: a provider that was not ready answers its default.
    """
    per_arm = logged.group_by("arm", maintain_order=True).agg(
        pl.len(), known=pl.count("propensity")
    )
    unknown = per_arm.filter(known=0)
    if unknown.height:
        arm, count, _ = unknown.row(0)
        raise DataError(
            f"None of the {count} choices of arm '{arm}' for flag '{key}' has a propensity, "
            f"so importance weights are undefined. Put '{flag_file.PROPENSITY}{arm}' into the "
            "flag's metadata, or set the attribute 'lightning.propensity'."
        )
    impossible = logged.filter(~pl.col("propensity").is_between(0, 1, closed="right"))
    if impossible.height:
        row = impossible.row(0, named=True)
        raise DataError(
            f"Rollout '{row['rollout_id']}' has a propensity of {row['propensity']:g} for flag "
            f"'{key}'. A propensity is a probability above 0; correct the flag's metadata."
        )


def _arms(usable: pl.DataFrame, document: dict[str, Any], request: Request) -> list[str]:
    """List the arms to learn: those tried or served, in the order of the file."""
    key, tried = request.key, set(usable["arm"])
    known = flag_file.variants(document, key)
    if strangers := sorted(tried - set(known)):
        raise DataError(
            f"Arm '{strangers[0]}' of flag '{key}' was tried, but '{request.flags}' has no such "
            f"variant. Its variants: {', '.join(known)}."
        )
    if len(tried) == 1:
        raise DataError(
            f"Only arm '{min(tried)}' of flag '{key}' was tried, so there is nothing to compare. "
            "Serve at least two variants, collect rollouts, then run this again."
        )
    return [arm for arm in known if arm in tried | flag_file.served(document, key)]


def _choices(usable: pl.DataFrame, arms: Sequence[str]) -> Choices:
    number = {arm: i for i, arm in enumerate(arms)}
    return Choices(
        arms=tuple(arms),
        taken=np.array([number[arm] for arm in usable["arm"]], dtype=np.int64),
        propensities=usable["propensity"].to_numpy(),
        rewards=usable["outcome"].to_numpy(),
        tasks=(usable["task"].rank("dense").to_numpy() - 1).astype(np.int64),
    )


def _learn(
    choices: Choices, usable: pl.DataFrame, request: Request
) -> tuple[NDArray[np.float64], Verdict]:
    in_train = (usable["split"] == TRAIN).to_numpy()
    if not in_train.any():
        raise DataError(
            f"All {len(in_train)} rollouts are held out, so there is nothing to learn from. "
            "Collect rollouts of more tasks, or lower --held-out."
        )
    train, held_out = choices.where(in_train), choices.where(~in_train)
    probabilities = learn(train, request.settings)
    seen = seen_by(held_out, probabilities, reward_model(train))
    return probabilities, judge(seen, held_out.tasks, request.settings.estimator)


def _record(store: str, run: Run, learned: Learned, request: Request, data: str) -> None:
    passed = learned.verdict.passed
    probabilities = {arm: weight / flag_file.WHOLE for arm, weight in learned.weights.items()}
    policy = run.policy(request.key, probabilities, asdict(request.settings))
    row = run.ended(
        outcome="promoted" if passed else "refused",
        fingerprint=data,
        metrics={
            "learned_from": learned.learned_from,
            "without_propensity": learned.without_propensity,
        },
        gate=asdict(learned.verdict),
        artifact=str(request.output) if passed else None,
    )
    with open_store(store, create=False) as opened:
        policies = with_status(
            read(opened, __package__, "policies"), policy, "live" if passed else "candidate"
        )
        where = f"key = {quote_literal(request.key)}"
        opened.insert("runs", arrow(row))
        opened.replace("policies", arrow(policies), where)


def _config(request: Request) -> dict[str, Any]:
    return asdict(request) | {"flags": str(request.flags), "output": str(request.output)}
