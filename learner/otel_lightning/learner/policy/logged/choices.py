"""Logged choices for a flag: one per rollout, with its task, propensity and outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.at_random import check_ease
from otel_lightning.learner.policy.assumptions.missing import (
    DROP,
    Missing,
    check_lost,
    check_missing,
)
from otel_lightning.learner.policy.assumptions.units import (
    NO_UNITS,
    Units,
    check_serial,
    check_shares,
)
from otel_lightning.learner.policy.assumptions.untold import check_untold
from otel_lightning.learner.policy.logged.propensities import with_checked_propensities
from otel_lightning.learner.policy.logged.staged import (
    keys_hint,
    known_keys,
    lost_attempts,
    read_staged,
    stage_choices,
)
from otel_lightning.learner.policy.logged.units_of_store import read_units_as_tasks
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.policy.serving.joint import flags_of
from otel_lightning.learner.policy.serving.versions import drawn_with_others
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, numbered
from otel_lightning.learner.transitions.settings import Settings as TransitionSettings
from otel_lightning.learner.transitions.splits import split
from otel_lightning.learner.transitions.stage import bounded

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
class LoggedChoices:
    """Choices with a reward and a propensity, and counts of the choices that were left out."""

    rows: pl.DataFrame
    """The columns `COLUMNS`, sorted by time, then by rollout_id."""
    unrewarded: pl.DataFrame
    """The same columns, for rollouts without a reward where nothing tells what that means."""
    without_propensity: int
    missing: Missing
    sources: dict[str, int]
    """Number of propensities from each source."""
    several: int = 0
    """Number of rollouts that served several variants of the flag; their first one counts."""
    open: int = 0
    """Number of the unrewarded rollouts that are open, so that their reward may still come."""
    units: Units = NO_UNITS
    """Task ids that count together as one task."""
    contradictory: int = 0
    """Number of rollouts whose rewards contradict each other; they count as without a reward."""
    jointly: int = 0
    """Number of choices left out because a policy drew the flag together with another one."""

    @property
    def notes(self) -> list[str]:
        """Sentences about the sources of the propensities and rollouts with several variants."""
        origin = ", ".join(f"{count:,} from {source}" for source, count in self.sources.items())
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
                f"{number_of(self.open, 'open rollout has', 'open rollouts have')} no reward yet; "
                "--until leaves the newest ones out."
            )
        if self.several:
            sentences.append(
                f"{self.several:,} of {number_of(self.rows.height, 'rollout')} served several "
                "variants of the flag; the first one counts."
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
                "this one together with others, so the rewards are those of combinations."
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
            impossible or missing because of a reward, rewards are missing or attempts were lost
            more often for one arm than for another, or frequencies are wanted and the arms were not
            drawn at random.
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
    if window.missing != DROP:
        check_lost(lost_attempts(store))
    if window.missing is None and still_open.height:
        joined = pl.concat([joined, still_open])
    choices = with_checked_propensities(store, joined, window, versions, are_combinations=together)
    choices, units = _with_units_as_tasks(store, window, choices)
    rewarded, unrewarded = _by_reward(choices)
    if window.task_by != "id":
        check_untold(rewarded)
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


def _with_units_as_tasks(
    store: Store, window: Window, choices: pl.DataFrame
) -> tuple[pl.DataFrame, Units]:
    """Count copies, and the rollouts of what an arm is kept for, as one task.

    Raises:
        DataError: If arms are kept for a while and nothing that was recorded tells for what, if
            their shares are not as the propensities say, or if they follow how easy a task is.
    """
    if window.task_by == "id":
        return choices, NO_UNITS
    with bounded(store):
        by_user = window.task_by == "user"
        by_unit, units = read_units_as_tasks(store, choices, window.key, by_user=by_user)
    check_serial(by_unit)
    if window.propensities not in {"frequencies", "random"}:
        check_ease(by_unit)
        if window.missing != DROP:  # what is dropped was drawn too
            check_shares(by_unit)
    if units.before == units.after:
        return choices, units
    return by_unit.with_columns(split(window.held_out), task="task_hash"), units


def _without_joint(store: Store, staged: pl.DataFrame, key: str) -> tuple[pl.DataFrame, int]:
    """Leave out choices that were drawn together with those of other flags; return their number."""
    versions = drawn_with_others(store, key)
    if not versions:
        return staged, 0
    alone, joint_choices = _parted(
        staged, pl.col("policy_version").is_in(versions).fill_null(value=False)
    )
    if alone.is_empty():
        raise DataError(
            f"All {joint_choices.height:,} choices of flag '{key}' were drawn together with those "
            "of other flags, by a policy of several. Learn with its key, or collect rollouts in "
            f"which '{key}' is drawn alone."
        )
    return alone, joint_choices.height


def _by_reward(choices: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part the rollouts with a reward from those without one that have a propensity."""
    rewarded, unrewarded = _parted(choices, pl.col("outcome").is_null())
    return rewarded, unrewarded.drop_nulls("propensity")


def _parted(rows: pl.DataFrame, has_property: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part the rows without and with a property; without a copy if no row has it."""
    has_it = rows.select(has_property).to_series()
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
    keys = known_keys(store)
    flags = flags_of(window.key, dict.fromkeys(keys))
    if len(set(flags)) < len(flags):
        raise DataError(f"Key '{window.key}' names a flag twice. Name each flag once.")
    since, until = _text(window.since), _text(window.until)
    if stage_choices(store, flags, since, until):
        return len(flags) > 1
    if set(flags) <= set(keys):
        raise DataError(
            f"Flag '{window.key}' has no choices between --since and --until. Widen them."
        )
    raise DataError(f"The store has no choices for flag '{window.key}'. {keys_hint(keys)}")


def _shuffled(staged: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Permute the outcomes among the rollouts that have one: a negative control."""
    rewarded = pl.col("outcome").is_not_null()
    # Only rollouts with a reward take part, so which rewards are missing stays as it was.
    shuffled_outcomes = staged.filter(rewarded)["outcome"].shuffle(seed)
    # The n-th rewarded rollout gets the n-th of the shuffled rewards.
    position = pl.when(rewarded).then(rewarded.cum_sum() - 1)
    return staged.with_columns(outcome=pl.lit(shuffled_outcomes).gather(position))


def _text(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S.%f}"
