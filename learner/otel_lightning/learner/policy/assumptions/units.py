"""Find the unit that arms were drawn for: all rollouts of a user who keeps an arm are one task.

The gate takes each task as one observation. If an arm is kept for a user, a session or a process,
its rollouts are one draw, whatever their task ids are. If an arm was drawn for each rollout,
rollouts with the same user have the same arm only as often as the propensities say. So each
recorded value that was known before the choice is tested. If arms are kept for it, its rollouts
become one task. The same test by time finds arms that were kept for a while, for a unit that was
not recorded; then the number of draws is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, log

import numpy as np
import polars as pl

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.copies import (
    MAX_TASK_SHARE,
    SIGNIFICANCE,
    with_common_tasks,
)

PARTS = 10
"""Number of parts of the log that are also tested alone: arms may be kept for some time only."""
MAX_ROLLOUTS = 100_000
"""Largest number of rollouts that the tests of the time and of the shares read, approximately."""
MAX_SHARE_DIFFERENCE = 0.005
"""Largest difference between an arm's share and its propensity that is accepted, so that
propensities with two digits pass."""


NOTHING_SHARED = pl.DataFrame(
    schema={"rollout_id": pl.String, "unit": pl.String, "value": pl.UInt64}
)
"""The table of values that rollouts share, without a row."""


@dataclass(frozen=True, slots=True)
class Units:
    """Task ids that count as one task."""

    names: tuple[str, ...] = ()
    """The shared values that connect task ids: `input`, or an attribute such as `user.id`."""
    before: int = 0
    """Number of tasks by their ids."""
    after: int = 0
    """Number of tasks that count."""

    copies: int = 1
    """How many times each task seems to have been recorded."""

    @property
    def notes(self) -> list[str]:
        """Sentences about what connects task ids; none if nothing does."""
        sentences: list[str] = []
        if self.before == self.after:
            return sentences
        count = f"{number_of(self.before, 'task')} count as {self.after:,}"
        if self.names:
            shared = " or ".join(self.names)
            sentences.append(
                f"Copies, or arms that are kept: rollouts of different task ids with the same "
                f"{shared} have the same arm more often than their propensities say, so {count}. "
                "If they are no copies, and no arm was kept, say so with --task-by id."
            )
        if self.copies > 1:
            sentences.append(
                f"Copies: the numbers of tasks with the same arms and outcomes are multiples of "
                f"{self.copies}, as if each was recorded {self.copies} times, so {count}. If they "
                "are no copies, say so with --task-by id."
            )
        return sentences


NO_UNITS = Units()


def as_units(
    rows: pl.DataFrame, shared: pl.DataFrame, inputs: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, Units]:
    """Give all rollouts of a unit that keeps an arm, and all copies, a common task_hash.

    Args:
        rows: The choices in time order: columns rollout_id, task_hash, arm and propensity.
        shared: What rollouts share: columns rollout_id, unit and value.
        inputs: The inputs of copies: columns rollout_id and value; None if there are no copies.
    """
    if shared.is_empty() and inputs is None:
        return rows, NO_UNITS
    numbers = rows.select("rollout_id").with_row_index("row")
    before, names = rows["task_hash"].n_unique(), []
    if inputs is not None:
        names.append("input")
        rows = with_common_tasks(rows, inputs.join(numbers, on="rollout_id"))
    for unit, values in _finest_first(shared.join(numbers, on="rollout_id").sort("row")):
        bets = _bets(values, rows)
        if bets.height and _beyond_chance(bets):
            # A value such as `anonymous`, whose rollouts each drew their own arm, connects none.
            sums = bets.group_by("value").agg(pl.sum("growth"))
            anew = sums.filter(pl.col("growth") < log(SIGNIFICANCE))
            names.append(unit)
            rows = with_common_tasks(rows, values.join(anew, on="value", how="anti"))
    return rows, Units(tuple(names), before, rows["task_hash"].n_unique())


def _finest_first(shared: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Return the values of each unit, the unit with most values first.

    If arms are kept for a user, a process that serves users in turn seems to keep them too, until
    each user is one task.
    """
    parts = shared.partition_by("unit", as_dict=True, include_key=False)
    named = [(str(unit), values) for (unit,), values in parts.items()]
    return sorted(named, key=lambda part: (-part[1]["value"].n_unique(), part[0]))


def at_equal_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rollouts chosen at the same nanosecond: columns rollout_id, unit and value."""
    times = rows["time"].to_physical().to_numpy()
    if rows["time"].null_count() or not (times[1:] == times[:-1]).any():
        return NOTHING_SHARED
    sizes = pl.len().over("time")
    few = rows.filter((sizes > 1) & (sizes <= max(MAX_TASK_SHARE * rows.height, 2)))
    return few.select(
        "rollout_id", unit=pl.lit("time of the choice"), value=pl.col("time").hash()
    ).cast(NOTHING_SHARED.schema)


def check_serial(rows: pl.DataFrame) -> None:
    """Refuse arms that were kept from one task to the next beyond chance.

    Args:
        rows: The choices in time order, with task_hash, arm, propensity and time.

    Raises:
        DataError: If tasks that began one after the other have the same arm more often than the
            propensities say.
    """
    size = MAX_ROLLOUTS // PARTS
    if rows.height > MAX_ROLLOUTS:
        starts = np.linspace(0, rows.height - size, PARTS).astype(int).tolist()
        rows = pl.concat([rows.slice(start, size) for start in starts])
    whole = pl.select(row=pl.int_range(rows.height, dtype=pl.UInt32), value=pl.lit(0))
    bets = _bets(whole, rows, other_time=True)
    if bets.height and _beyond_chance(bets):
        if rows["arm"].n_unique() == 1:
            raise DataError(
                f"Only arm '{rows['arm'][0]}' was chosen, though its propensity is below 1, so "
                "there is nothing to compare. Serve at least two variants, or correct the "
                "propensities."
            )
        raise DataError(
            "Tasks that began one after the other have the same arm more often than their "
            "propensities say. Either an arm was kept for several tasks (by a process, a session "
            "or a day): then make that the task id, since it is what was drawn. Or the "
            "propensities are wrong. If neither matters, say so with --task-by id."
        )


def check_shares(rows: pl.DataFrame) -> None:
    """Refuse arms that were drawn more or less often than their propensities say.

    Only policy versions in which each arm has one propensity are tested, and each task counts once.

    Args:
        rows: The choices: columns task_hash, arm, propensity and policy_version.

    Raises:
        DataError: If the share of an arm is off by more than `MAX_SHARE_DIFFERENCE`, beyond chance.
    """
    columns = rows.select("task_hash", "arm", "propensity", "policy_version").with_row_index("row")
    every = max(rows.height // MAX_ROLLOUTS, 1)
    some = columns.filter(columns["task_hash"].to_numpy() // 2**20 % every == 0)
    known = some.filter(pl.col("propensity").fill_nan(None).is_not_null())
    for rows_of_version in known.partition_by("policy_version"):
        _check_shares_of_version(rows_of_version)


def _check_shares_of_version(rows: pl.DataFrame) -> None:
    shares = rows.group_by("arm").agg(pl.min("propensity"), high=pl.max("propensity")).sort("arm")
    if (shares["high"] != shares["propensity"]).any():
        return
    drawn = _one_of_each(rows, "task_hash")
    tests = 2 if drawn.height == rows.height else 4  # each with two tails
    for arm, propensity, _ in shares.iter_rows():
        count, of_all = ((part["arm"] == arm).sum() for part in (drawn, rows))
        p_value, number, total, unit = min(
            (_tail(count, drawn.height, propensity), count, drawn.height, "tasks"),
            (_tail_of_all(rows, arm, propensity), of_all, rows.height, "rollouts"),
        )
        if tests * shares.height * p_value < SIGNIFICANCE:
            raise DataError(
                f"Arm '{arm}' was drawn for {number:,} of {total:,} {unit} "
                f"({number / total:.1%}), but its propensity is {propensity:.1%}: more than "
                "chance. Either the propensities are wrong, or some rollouts were not "
                "recorded, or an arm was kept for several tasks, such as those of a user; then "
                "make that the task id. If arms were drawn at random for each task, "
                "--propensities random takes their frequencies."
            )


def _tail_of_all(rows: pl.DataFrame, arm: str, propensity: float) -> float:
    """Do the same for the rollouts of all tasks, by the normal approximation over tasks.

    A task may keep its arm or run each arm in turn, so the variance is measured between the tasks'
    counts. It is at least the variance of independent draws, since rare arms have few counts.
    """
    tasks = rows.group_by("task_hash").agg(pl.len(), count=(pl.col("arm") == arm).sum())
    total, count = rows.height, int(tasks["count"].sum())
    p = _nearest(count / total, propensity)
    if p is None or tasks.height == total:
        return 1.0
    off = tasks["count"].to_numpy() - tasks["len"].to_numpy() * p
    variance = max(float((off**2).sum()), total * p * (1 - p))
    return erfc(abs(float(off.sum())) / (2 * variance) ** 0.5) / 2


def _nearest(share: float, propensity: float) -> float | None:
    """Move the propensity towards the share by `MAX_SHARE_DIFFERENCE`.

    Returns:
        The moved propensity; None if it explains the share then.
    """
    away = share - propensity
    p = propensity + float(np.clip(away, -MAX_SHARE_DIFFERENCE, MAX_SHARE_DIFFERENCE))
    return p if abs(away) > MAX_SHARE_DIFFERENCE and 0 < p < 1 else None


def _tail(count: int, tasks: int, propensity: float) -> float:
    """Compute the probability of a count at least as far from its mean (binomial, one tail)."""
    p = _nearest(count / tasks, propensity)
    if p is None:
        return 1.0
    number = np.arange(tasks + 1)
    factorials = np.cumsum(np.log(np.maximum(number, 1)))
    ways = factorials[-1] - factorials - factorials[::-1]
    chances = np.exp(ways + number * log(p) + (tasks - number) * log(1 - p))
    return float(chances[count:].sum() if count > tasks * p else chances[: count + 1].sum())


def _bets(values: pl.DataFrame, rows: pl.DataFrame, *, other_time: bool = False) -> pl.DataFrame:
    """Bet half of a stake that each task has the arm of the task before it with its value.

    Only one rollout of a task counts: a task may keep its arm. If arms were drawn independently,
    [equal] / propensity is 1 on average. So the stake grows to 1 / p with a probability of at most
    p. Halves leave room for propensities that are a little wrong.

    Args:
        values: Columns row, the number of a choice, and value, in time order.
        rows: The choices in time order.
        other_time: Whether to bet only if the choice before has another time, so that their order
            is known.

    Returns:
        Columns value and growth, the logarithm of what a bet multiplies the stake by.
    """
    at = values["row"]
    choices = rows.select("task_hash", "arm", "propensity", "time")[at]
    before = _one_of_each(values.hstack(choices), "value", "task_hash").with_columns(
        equal=pl.col("arm") == pl.col("arm").shift().over("value"),
        later=pl.col("time") != pl.col("time").shift().over("value"),
    )
    placed = before.filter(pl.col("later")) if other_time else before.drop_nulls("equal")
    won = (0.5 + 0.5 / pl.col("propensity")).log()
    return placed.select("value", growth=pl.when("equal").then(won).otherwise(-log(2)))


def _one_of_each(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Select one rollout of each task, whatever its place: some run each arm in turn."""
    known = rows.filter(pl.col("propensity").fill_nan(None).is_not_null())
    number = pl.col("row").hash()
    return known.filter(number == number.min().over(columns))


def _beyond_chance(bets: pl.DataFrame) -> bool:
    """Return whether the stakes grew beyond chance: in the whole log, in a part, or for a value."""
    growth = bets["growth"].to_numpy()
    parts = _log_mean([part.sum() for part in np.array_split(growth, PARTS)])
    by_value = bets.group_by("value").agg(pl.sum("growth"))["growth"].to_list()
    # The mean of stakes that each begin with 1 is such a stake, too.
    return _log_mean([growth.sum(), parts, _log_mean(by_value)]) > -log(SIGNIFICANCE)


def _log_mean(logs: Sequence[float]) -> float:
    return float(np.logaddexp.reduce(logs) - np.log(len(logs)))
