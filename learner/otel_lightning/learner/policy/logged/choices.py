"""Logged choices for a flag: one per rollout, with its task, propensity and outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.instrumentation.attributes import PROPENSITY
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.at_random import MAX_INPUTS, check_ease, check_random
from otel_lightning.learner.policy.assumptions.missing import DROP, Missing, check_missing
from otel_lightning.learner.policy.assumptions.units import (
    NO_UNITS,
    Units,
    check_serial,
    check_shares,
)
from otel_lightning.learner.policy.logged.staged import (
    keys_hint,
    known_keys,
    read_inputs,
    read_staged,
    stage_choices,
)
from otel_lightning.learner.policy.logged.units_of_store import read_units_as_tasks
from otel_lightning.learner.policy.serving.joint import flags_of
from otel_lightning.learner.policy.serving.served import arms_of, shares_in_context
from otel_lightning.learner.policy.serving.versions import drawn_with_others, versions_in_context
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, numbered
from otel_lightning.learner.policy.softmax.features import read_features
from otel_lightning.learner.score.usable import HUGE
from otel_lightning.learner.transitions.settings import Settings as TransitionSettings
from otel_lightning.learner.transitions.splits import split
from otel_lightning.learner.transitions.stage import bounded

DRAWN_AT_RANDOM = "frequencies of arms that were drawn at random, as --propensities random says"
COLUMNS = (
    "rollout_id",
    "split",
    "arm",
    "propensity",
    "outcome",
    "task",
    "policy_version",
    "time",
)


@dataclass(frozen=True, slots=True)
class Window:
    """Which logged choices to read."""

    key: str
    reward: str | None = None
    held_out: float = 0.3
    since: datetime | None = None
    until: datetime | None = None
    missing: str | None = None
    worst: float | None = None
    """Smallest possible reward, for `--missing worst`; None uses the smallest logged reward."""
    propensities: str = "auto"
    shuffle_rewards: int | None = None
    task_by: str = "user"
    """How to name the task of a rollout without a task id; one of `TASK_BY`."""


@dataclass(frozen=True, slots=True)
class LoggedChoices:
    """Choices with a reward and a propensity, and counts of the choices that were left out."""

    rows: pl.DataFrame
    """The columns `COLUMNS`, sorted by time, then by rollout_id."""
    unrewarded: pl.DataFrame
    """The same columns of rollouts without a reward of which nothing says what it means."""
    without_propensity: int
    missing: Missing
    sources: dict[str, int]
    """Number of propensities from each source."""
    several: int = 0
    """Number of rollouts that served several variants of the flag; their first one counts."""
    open: int = 0
    """Number of the unrewarded rollouts that are open, so that their reward may still come."""
    units: Units = NO_UNITS
    """What counts as one task though it has several task ids."""
    contradictory: int = 0
    """Number of rollouts whose rewards contradict each other; they count as without a reward."""
    jointly: int = 0
    """Number of choices left out because a policy drew the flag together with another one."""

    @property
    def notes(self) -> list[str]:
        """Sentences about the sources of the propensities and rollouts with several variants."""
        origin = ", ".join(f"{count} from {source}" for source, count in self.sources.items())
        sentences = [f"Propensities: {origin}."]
        if "frequencies" in self.sources:
            sentences.append(
                "Frequencies are propensities only if no variant was chosen by the input: else the "
                "variant that got the easier inputs looks better. The tasks, the times, the "
                "services and the words of the inputs do not show that; other causes would not be "
                "seen."
            )
        if self.open:
            sentences.append(
                f"{number_of(self.open, 'open rollout has', 'open rollouts have')} no reward "
                "yet; --until leaves "
                "the newest ones out."
            )
        if self.several:
            sentences.append(
                f"{self.several:,} of {number_of(self.rows.height, 'rollout')} served several "
                "variants of the "
                "flag; the first one counts."
            )
        return sentences + self.exceptions

    @property
    def exceptions(self) -> list[str]:
        """Sentences about choices that were left out, and about task ids that count as one task."""
        sentences = []
        if self.contradictory:
            sentences.append(
                f"{number_of(self.contradictory, 'rollout has', 'rollouts have')} contradictory "
                "rewards (two values of one name and time), so they count as without one."
            )
        if self.jointly:
            sentences.append(
                f"{number_of(self.jointly, 'choice')} left out: a policy of several flags drew "
                "this one "
                "together with others, so the rewards are those of combinations."
            )
        return sentences + self.units.notes


def read_choices(
    store: Store, window: Window, versions: Mapping[str, Mapping[str, float]]
) -> LoggedChoices:
    """Read the first choice of each rollout for a flag, with the rollout's outcome.

    Args:
        store: An open store.
        window: Which choices to read, and how to treat missing rewards.
        versions: Probability of each arm by policy version, for traces without a propensity.

    Raises:
        DataError: If no rollout has a reward, nothing was chosen for the flag, a propensity is
            impossible, rewards are missing more often for one arm than for another, or frequencies
            are wanted and the arms were not drawn at random.
    """
    # Only staging is bounded: it is the part whose memory grows with the store.
    with bounded(store):
        together = _stage_choices(store, window)
        settings = TransitionSettings(reward=window.reward, task_by=window.task_by)
        staged = read_staged(store, settings)
    if window.shuffle_rewards is not None:
        staged = _shuffled(staged, window.shuffle_rewards)
    staged = staged.with_columns(split(window.held_out), task="task_hash")
    staged, jointly = _without_joint(store, staged, window.key)
    contradictory = int(staged["contradicts"].sum())
    # The reward of an open rollout may still come.
    joined, still_open = _parted(staged, pl.col("outcome").is_null() & pl.col("open"))
    if joined["outcome"].null_count() == joined.height:
        raise _no_reward(window)
    joined, missing = check_missing(joined, window.missing, window.worst)
    if window.missing is None and still_open.height:
        joined = pl.concat([joined, still_open])
    known = _with_checked_propensities(store, joined, window, versions, together=together)
    known, units = _with_units_as_tasks(store, window, known)
    rewarded, unrewarded = _by_reward(known)
    usable = rewarded.drop_nulls("propensity")
    return LoggedChoices(
        rows=usable.select(COLUMNS),
        unrewarded=unrewarded.select(COLUMNS),
        without_propensity=rewarded.height - usable.height,
        missing=missing,
        several=int(usable["switched"].sum()),
        open=int(unrewarded["open"].sum()),
        units=units,
        contradictory=contradictory,
        jointly=jointly,
        sources=dict(usable.group_by("source").len().sort("source").iter_rows()),
    )


def _no_reward(window: Window) -> DataError:
    named = f" named '{window.reward}'" if window.reward else ""
    return DataError(
        f"No rollout with a choice for flag '{window.key}' has a reward{named}. Send "
        "'gen_ai.evaluation.result' events for these rollouts, then run this again; or reward "
        "what is stored by a rule: --reward FILE.py:FUNCTION"
    )


def _with_checked_propensities(
    store: Store,
    joined: pl.DataFrame,
    window: Window,
    versions: Mapping[str, Mapping[str, float]],
    *,
    together: bool,
) -> pl.DataFrame:
    """Add each propensity and its source; refuse those that cannot be right.

    Args:
        store: An open store with staged choices.
        joined: The choices with their outcomes.
        window: Where the propensities come from.
        versions: Probability of each arm by policy version.
        together: Whether the choices are combinations of several flags.
    """
    if window.propensities == "frequencies":
        check_random(joined, read_inputs(store, MAX_INPUTS))
    # Versions of contextual policies have no fixed propensity. They are filled in afterwards, from
    # the features of each rollout.
    known = with_propensities(joined, window.propensities, versions, together=together)
    if window.propensities in {"auto", "version"}:
        known = _in_context(store, window.key, known, together=together)
    _check_propensities(known, window.key)
    _check_finite(known.drop_nulls(["propensity", "outcome"]))
    return known


def _with_units_as_tasks(
    store: Store, window: Window, known: pl.DataFrame
) -> tuple[pl.DataFrame, Units]:
    """Count copies, and the rollouts of what an arm is kept for, as one task.

    Raises:
        DataError: If arms are kept for a while and nothing that was recorded tells for what, if
            their shares are not as the propensities say, or if they follow how easy a task is.
    """
    if window.task_by == "id":
        return known, NO_UNITS
    with bounded(store):
        by_user = window.task_by == "user"
        found, units = read_units_as_tasks(store, known, window.key, by_user=by_user)
    check_serial(found)
    if window.propensities not in {"frequencies", "random"}:
        check_ease(found)
        if window.missing != DROP:  # what is dropped was drawn too
            check_shares(found)
    if units.before == units.after:
        return known, units
    return found.with_columns(split(window.held_out), task="task_hash"), units


def _without_joint(store: Store, staged: pl.DataFrame, key: str) -> tuple[pl.DataFrame, int]:
    """Leave out choices that were drawn together with those of other flags; return their number."""
    versions = drawn_with_others(store, key)
    if not versions:
        return staged, 0
    left, out = _parted(staged, pl.col("policy_version").is_in(versions).fill_null(value=False))
    if left.is_empty():
        raise DataError(
            f"All {out.height} choices of flag '{key}' were drawn together with those of other "
            "flags, by a policy of several. Learn with its key, or collect rollouts in which "
            f"'{key}' is drawn alone."
        )
    return left, out.height


def _by_reward(known: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part the rollouts with a reward from those without one that have a propensity."""
    rewarded, unrewarded = _parted(known, pl.col("outcome").is_null())
    return rewarded, unrewarded.drop_nulls("propensity")


def _parted(rows: pl.DataFrame, apart: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part the rows without and with a property; without a copy if no row has it."""
    has_it = rows.select(apart).to_series()
    return (rows.filter(~has_it), rows.filter(has_it)) if has_it.any() else (rows, rows.clear())


def as_choices(rows: pl.DataFrame, arms: Sequence[str]) -> Choices:
    """Turn logged choices into arrays, one entry per rollout, in the order of the rows.

    Args:
        rows: Rows of `LoggedChoices`, N of them.
        arms: All arms by name; each choice becomes its arm's position in them.
    """
    return Choices(
        arms=tuple(arms),
        taken=numbered(rows["arm"], arms),
        propensities=rows["propensity"].to_numpy(),
        rewards=rows["outcome"].to_numpy(),
        # Task hashes become 0, 1, 2, …, because bootstraps count by `np.bincount`.
        tasks=rows["task"].rank("dense").to_numpy().astype(np.int64) - 1,
    )


def _stage_choices(store: Store, window: Window) -> bool:
    """Stage the choices; return whether they are combinations of several flags."""
    known = known_keys(store)
    flags = flags_of(window.key, dict.fromkeys(known))
    if len(set(flags)) < len(flags):
        raise DataError(f"Key '{window.key}' names a flag twice. Name each flag once.")
    since, until = _text(window.since), _text(window.until)
    if stage_choices(store, flags, since, until):
        return len(flags) > 1
    if set(flags) <= set(known):
        raise DataError(
            f"Flag '{window.key}' has no choices between --since and --until. Widen them."
        )
    raise DataError(f"The store has no choices for flag '{window.key}'. {keys_hint(known)}")


def _shuffled(staged: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Permute the outcomes among the rollouts that have one: a negative control."""
    rewarded = pl.col("outcome").is_not_null()
    # Only rollouts with a reward take part, so which rewards are missing stays as it was.
    mixed = staged.filter(rewarded)["outcome"].shuffle(seed)
    # The n-th rewarded rollout gets the n-th of the shuffled rewards.
    place = pl.when(rewarded).then(rewarded.cum_sum() - 1)
    return staged.with_columns(outcome=pl.lit(mixed).gather(place))


def _text(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S.%f}"


def with_propensities(
    joined: pl.DataFrame,
    wanted: str,
    versions: Mapping[str, Mapping[str, float]],
    *,
    together: bool,
) -> pl.DataFrame:
    """Add each propensity from the trace, the policy version or the frequencies, and its source.

    Where one policy chose several flags together, the trace has the share of each variant alone.
    So the version comes before the trace.

    Args:
        joined: The choices: columns arm, propensity and policy_version.
        wanted: The source, as `--propensities` names it.
        versions: Probability of each arm by policy version.
        together: Whether one policy chose several flags together.
    """
    if wanted in {"frequencies", "random"}:
        # Within a version, since each version had its own shares; pooled frequencies would be wrong
        # for both.
        shares = pl.len().over("policy_version", "arm") / pl.len().over("policy_version")
        source = "frequencies" if wanted == "frequencies" else DRAWN_AT_RANDOM
        return joined.with_columns(propensity=shares, source=pl.lit(source))
    complete = not together and not joined["propensity"].null_count()
    if wanted == "trace" or (wanted == "auto" and complete):
        return joined.with_columns(source=pl.lit("trace"))
    both = joined.join(
        _of_versions(versions),
        on=["policy_version", "arm"],
        how="left",
        maintain_order="left",  # of time
    )
    if wanted == "version":
        return both.with_columns(propensity="of_version", source=pl.lit("version"))
    # The source that comes first wins, and names itself in the column `source`.
    first, then = ("of_version", "propensity") if together else ("propensity", "of_version")
    by_trace = pl.col(first).is_null() if together else pl.col(first).is_not_null()
    trace = pl.when(by_trace).then(pl.lit("trace"))
    return both.with_columns(
        propensity=pl.coalesce(first, then),
        source=trace.otherwise(pl.lit("version")),
    )


def _of_versions(versions: Mapping[str, Mapping[str, float]]) -> pl.DataFrame:
    """Return the columns policy_version, arm and of_version, its share of the traffic."""
    shares = [
        {"policy_version": version, "arm": arm, "of_version": share}
        for version, arms in versions.items()
        for arm, share in arms.items()
    ]
    schema = {"policy_version": pl.String, "arm": pl.String, "of_version": pl.Float64}
    return pl.DataFrame(shares, schema)


def _in_context(store: Store, key: str, known: pl.DataFrame, *, together: bool) -> pl.DataFrame:
    """Fill in the propensities of contextual policies from the targeting rules that were served."""
    for version, part, spec in versions_in_context(store, key):
        mine = pl.col("propensity").is_null() | pl.lit(together)
        mine &= pl.col("policy_version") == version
        rows = known.filter(mine)
        if rows.is_empty():
            continue
        arms = sorted(arms_of(part) | set(rows["arm"].unique()))
        features = read_features(store, spec, rows["rollout_id"])
        table = shares_in_context(part, features, arms, {})
        given = table[np.arange(rows.height), numbered(rows["arm"], arms)]
        # An arm that the rules cannot serve was not chosen by them: its propensity is unknown, not
        # 0.
        shares = [share if share > 0 else None for share in given.tolist()]
        in_context = pl.DataFrame({"rollout_id": rows["rollout_id"], "in_context": shares})
        known = (
            known.join(in_context, on="rollout_id", how="left", maintain_order="left")
            .with_columns(
                propensity=pl.coalesce("in_context", "propensity"),
                source=pl.when(mine).then(pl.lit("version")).otherwise("source"),
            )
            .drop("in_context")
        )
    return known


def _check_finite(logged: pl.DataFrame) -> None:
    """Refuse rewards whose squares are not finite numbers."""
    huge = logged.filter(pl.col("outcome").abs() > HUGE)
    if huge.height:
        row = huge.row(0, named=True)
        raise DataError(
            f"Rollout '{row['rollout_id']}' has a reward of {row['outcome']:g}, and {huge.height} "
            f"of {logged.height} rollouts have one beyond {HUGE:g}, which cannot be computed with. "
            "Send it again in another unit, or choose another with --reward."
        )


def _check_propensities(logged: pl.DataFrame, key: str) -> None:
    """Refuse an arm whose propensity is never known, because leaving it out would hide an arm.

    Single choices without a propensity are left out later. They are expected: a flag provider that
    is not ready yet returns the default.
    """
    per_arm = logged.group_by("arm", maintain_order=True).agg(
        pl.len(), known=pl.count("propensity")
    )
    unknown = per_arm.filter(known=0)
    if unknown.height:
        arm, count, _ = unknown.row(0)
        raise DataError(
            f"None of {number_of(count, 'choice')} of arm '{arm}' for flag '{key}' has a "
            f"propensity, so importance weights are undefined. Put '{PROPENSITY}.{arm}' into the "
            f"flag's metadata, set the attribute '{PROPENSITY}', or estimate them with "
            "--propensities frequencies."
        )
    # The weight of a smaller one, times a reward, has no finite square.
    impossible = logged.filter(~pl.col("propensity").is_between(1 / HUGE, 1))
    if impossible.height:
        row = impossible.row(0, named=True)
        raise DataError(
            f"Rollout '{row['rollout_id']}' has a propensity of {row['propensity']:g} for flag "
            f"'{key}', and {impossible.height} of {logged.height} choices have such a one. A "
            f"propensity is a probability, above 0 (at least {1 / HUGE:g}) and at most 1; correct "
            "the flag's metadata."
        )
