"""Rewarded rollouts of the train split, and which of them to show to the proposing model."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

import numpy as np
import polars as pl

from otel_lightning.collector.store import Sql, Store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.confidence import NORMAL_97_5
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.policy.assumptions.units import NO_UNITS, Units
from otel_lightning.learner.policy.logged.propensities import with_propensities
from otel_lightning.learner.policy.logged.staged import (
    keys_hint,
    known_keys,
    read_staged,
    stage_choices,
)
from otel_lightning.learner.policy.logged.units_of_store import read_copies_as_tasks
from otel_lightning.learner.policy.serving.versions import known_versions
from otel_lightning.learner.task_splits import TRAIN
from otel_lightning.learner.transitions.settings import Settings as TransitionSettings
from otel_lightning.learner.transitions.splits import split
from otel_lightning.learner.transitions.stage import bounded

FAILURES = 2 / 3
"""Share of the records that are failures; the others are successes."""
LIKENESS = 40
"""Number of characters of an explanation by which failures count as of one kind."""
MIN_TASKS = 10
"""Smallest number of tasks of a variant for a bound of its mean reward."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which rollouts to read."""

    key: str
    reward: str | None = None
    held_out: float = 0.3
    task_by: str = "user"
    since: datetime | None = None
    failed_below: float | None = None
    """A rollout failed if its reward is below this; None takes the middle between the smallest
    and the largest logged reward."""
    shuffle_rewards: int | None = None


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Rewarded rollouts of the train split, newest first."""

    rows: pl.DataFrame
    """Columns rollout_id, judged_as, arm, time, task_hash, outcome, failed, kind, explained.
    `judged_as` is the rollout whose reward and explanations a rollout has: its own, unless rewards
    are shuffled."""
    variants: int
    explained: int
    """Number of failed rollouts that somebody explained."""
    units: Units = NO_UNITS
    """Task ids that count together as one task."""

    @property
    def failed(self) -> int:
        """Number of failed rollouts."""
        return int(self.rows["failed"].sum())


def read_rollouts(store: Store, window: Window) -> Rollouts:
    """Read the rollouts that the proposing model may learn from.

    Rollouts without a reward say nothing, and held-out tasks are left to the gate. Copies of a
    task count as one task, as for the gate of `policy`: else one of them would be shown and another
    one would judge. A copy with a held-out id is not shown either, since the gate by running goes
    by ids.

    Args:
        store: An open store.
        window: Which rollouts to read.

    Raises:
        DataError: If there is no such rollout.
    """
    since = Sql("NULL") if window.since is None else f"{window.since:%Y-%m-%d %H:%M:%S.%f}"
    if not stage_choices(store, [window.key], since, Sql("NULL")):
        raise _no_choices(store, window)
    settings = TransitionSettings(reward=window.reward, task_by=window.task_by)
    by_id = read_staged(store, settings).with_columns(split(window.held_out).alias("split_of_id"))
    staged, units = _with_copies_as_tasks(store, window, by_id)
    rewarded = staged.filter(pl.col("outcome").is_not_null())
    rows = (
        rewarded.with_columns(split(window.held_out), judged_as="rollout_id")
        .filter(split=TRAIN, split_of_id=TRAIN)
        .select("rollout_id", "arm", "time", "task_hash", "outcome", "judged_as")
    )
    if rows.is_empty():
        raise _no_rewards(window, rewarded.height)
    shuffled = _shuffled(rows, window.shuffle_rewards)
    rows = _judged(shuffled, read(store, __package__, "explanations"))
    rows = rows.with_columns(failed=_failed(rows["outcome"], window.failed_below))
    explained = rows.filter("failed", "explained").height
    return Rollouts(rows, rows["arm"].n_unique(), explained, units)


def _with_copies_as_tasks(
    store: Store, window: Window, staged: pl.DataFrame
) -> tuple[pl.DataFrame, Units]:
    """Count copies of a task as one task, unless the user says that task ids stand."""
    if window.task_by == "id":
        return staged, NO_UNITS
    versions = known_versions(store, window.key)
    choices = with_propensities(staged, "auto", versions, are_combinations=False)
    with bounded(store):
        return read_copies_as_tasks(store, choices.with_columns(task="task_hash"))


def _failed(rewards: pl.Series, threshold: float | None) -> pl.Series:
    """Return which rewards are failures; without a threshold, those below the middle of the range.

    If all rewards are equal, they are failures unless they are above 0.
    """
    if threshold is not None:
        return rewards < threshold
    lowest, highest = float(rewards.to_numpy().min()), float(rewards.to_numpy().max())
    return rewards < (lowest + highest) / 2 if lowest < highest else rewards <= 0


def parents(rollouts: Rollouts, variants: Sequence[str]) -> list[str]:
    """Order variants by the lower end of the 95 % interval of their mean reward, best first.

    Args:
        rollouts: The rollouts.
        variants: The variants to order. Those with fewer than `MIN_TASKS` tasks come last, in the
            order that they have here.
    """
    # In a fixed order, so that equal variants have the same bound to the last digit.
    tasks = rollouts.rows.sort("rollout_id").group_by("arm", "task_hash", maintain_order=True)
    bounds = (
        tasks.agg(pl.mean("outcome"))
        .sort("arm", "outcome")
        .group_by("arm")
        .agg(
            pl.len().alias("tasks"),
            low=pl.mean("outcome") - NORMAL_97_5 * pl.std("outcome") / pl.len().sqrt(),
        )
    )
    low_bounds = {arm: low for arm, count, low in bounds.iter_rows() if count >= MIN_TASKS}
    # `sorted` is stable, so variants without a bound keep their order.
    return sorted(variants, key=lambda arm: -low_bounds.get(arm, -np.inf))


def choose(rollouts: Rollouts, parent: str, count: int, call: int, seed: int) -> list[str]:
    """Choose the records of one call: two thirds failures of all kinds, one third successes.

    Failures are dealt out by kind in turn, newest first, those of the parent before others. Each
    call gets other records as long as there are enough.

    Args:
        rollouts: The rollouts.
        parent: The variant to improve; successes are its own.
        count: Number of records.
        call: Number of the call, from 0.
        seed: Seed of the order of the kinds.

    Returns:
        Ids of rollouts, failures first.
    """
    own = rollouts.rows.with_columns(own=pl.col("arm") == parent).sort(
        "own", descending=True, maintain_order=True
    )
    failures = _dealt(own.filter("failed"), seed)
    successes = own.filter("own", ~pl.col("failed"))["rollout_id"].to_list()
    # If there are too few successes, failures fill their places.
    failure_count = min(len(failures), max(round(count * FAILURES), count - len(successes)))
    return _window(failures, failure_count, call) + _window(successes, count - failure_count, call)


def _dealt(failures: pl.DataFrame, seed: int) -> list[str]:
    """Take one failure of each kind in turn."""
    queues: dict[str, list[str]] = defaultdict(list)
    for rollout, kind in failures.select("rollout_id", "kind").iter_rows():
        queues[kind].append(rollout)
    kinds = sorted(queues)
    order = np.random.default_rng(seed).permutation(len(kinds))
    turns = zip_longest(*(queues[kinds[i]] for i in order))
    return [rollout for turn in turns for rollout in turn if rollout is not None]


def _window(rollouts: Sequence[str], count: int, call: int) -> list[str]:
    count = min(count, len(rollouts))
    # Each call begins where the one before ended, and begins again at the end of the list.
    return [rollouts[(call * count + i) % len(rollouts)] for i in range(count)]


def _shuffled(rows: pl.DataFrame, seed: int | None) -> pl.DataFrame:
    """Permute rewards and their explanations among rollouts: a control with nothing to learn."""
    if seed is None:
        return rows
    # By id: the order in time of rollouts that run at once differs from run to run.
    rows = rows.sort("rollout_id")
    order = np.random.default_rng(seed).permutation(rows.height)
    judged = rows.select("judged_as", "outcome")[order.tolist()]
    return rows.with_columns(judged["judged_as"], judged["outcome"])


def _judged(rows: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """Add to each rollout its kind of failure and whether it has an explanation."""
    texts = judgements.filter(pl.col("explanation").is_not_null()).with_columns(
        # Numbers differ between failures of one kind, such as "row 17 is missing".
        like=pl.col("explanation").str.replace_all(r"\d+", "#").str.slice(0, LIKENESS)
    )
    kinds = texts.group_by("rollout_id").agg(
        kind=pl.concat_str("name", pl.lit(": "), "like").sort().str.join("; ")
    )
    return (
        rows.join(kinds, left_on="judged_as", right_on="rollout_id", how="left")
        .with_columns(explained=pl.col("kind").is_not_null(), kind=pl.col("kind").fill_null(""))
        .sort("time", "rollout_id", descending=[True, False], nulls_last=True)
    )


def _no_choices(store: Store, window: Window) -> DataError:
    since = " since --since" if window.since else ""
    return DataError(
        f"The store has no choices for flag '{window.key}'{since}, so no prompt can be tied to a "
        f"rollout. {keys_hint(known_keys(store))}"
    )


def _no_rewards(window: Window, rewarded: int) -> DataError:
    if not rewarded:
        named = f" named '{window.reward}'" if window.reward else ""
        return DataError(
            f"No rollout with a choice for flag '{window.key}' has a reward{named}. Send "
            "'gen_ai.evaluation.result' events for them, or give a rule with --reward."
        )
    return DataError(
        f"Each rollout of flag '{window.key}' with a reward ({rewarded:,}) is of a held-out task, "
        "which the proposing model must not see. Collect rollouts of more tasks, or lower "
        "--held-out."
    )
