"""Count task ids as one task where their rollouts are copies: the same input and the same draw.

The gate takes each task as one observation. A log that was multiplied, with a new task id for each
copy, would have more observations than anybody made. Equal inputs alone prove nothing: many users
ask the same question. But if each rollout drew its arm anew, rollouts with the same input have the
same arm only as often as the propensities say.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from math import lgamma, log

import numpy as np
import polars as pl
from numpy.typing import NDArray

Integers = NDArray[np.int64]
CHANCE = 0.001
"""Probability that independent draws are taken for copies."""
LARGEST = 0.1
"""Largest share of the tasks for which one text may stand. With a text of more tasks, every task
begins, whatever it is about."""


def texts_of_tasks(rows: pl.DataFrame, tasks: int) -> pl.DataFrame:
    """Select the rollouts whose text can tell tasks apart, because few tasks have it.

    Args:
        rows: The choices: columns task_hash and input.
        tasks: Number of all tasks.
    """
    return rows.filter(pl.n_unique("task_hash").over("input") <= max(LARGEST * tasks, 1))


def with_common_tasks(rows: pl.DataFrame) -> pl.DataFrame:
    """Give all task ids that are connected by equal inputs one common task.

    Args:
        rows: The choices: columns task_hash and input, a hash of the user's text, which is null
            where it is not known or tells no tasks apart.

    Returns:
        The rows with such a `task_hash`.
    """
    known = rows.select("task_hash", "input").drop_nulls("input")
    names, tasks = np.unique(rows["task_hash"].to_numpy(), return_inverse=True)
    of_known = tasks[rows["input"].is_not_null().to_numpy()]
    inputs = np.unique(known["input"].to_numpy(), return_inverse=True)[1]
    found = _connected(of_known, inputs, len(names))
    together = np.bincount(found, minlength=len(names))
    # The least hash of several is small, and the split goes by size. So it is hashed once more.
    common = names.copy()
    for first in np.flatnonzero(together > 1):
        common[first] = int(sha256(f"copies of {names[first]}".encode()).hexdigest()[:16], 16)
    return rows.with_columns(task_hash=pl.Series(common[found[tasks]], dtype=pl.UInt64))


def drawn_together(rows: pl.DataFrame) -> bool:
    """Test whether tasks with the same input have the same arms beyond chance.

    Each task is compared with the task before it with the same input, in two ways: by the arm of
    one rollout, chosen by the hash of the task; and by the arms and outcomes of all its rollouts,
    whatever their order. If arms were drawn anew, [equal] / probability of these arms is at most 1
    on average, whatever the task before had. Half of a stake is bet on each comparison; the stake
    grows to 1 / p with a probability of at most p. Halves leave room for propensities that are a
    little wrong.

    Args:
        rows: Choices whose text can tell tasks apart, in time order: columns task_hash, input, arm,
            outcome and propensity.

    Source:
        Ville's inequality, as in Shafer & Vovk, Game-theoretic foundations (2019), section 2.1.
    """
    columns = rows.select("input", "task_hash", "arm", "outcome", "propensity").fill_nan(None)
    tasks = columns.group_by("input", "task_hash", maintain_order=True).agg(pl.all())
    of_one = of_all = 0.0
    before: dict[int, tuple[object, object]] = {}
    for text, task, arms, outcomes, propensities in tasks.iter_rows():
        if None in propensities:
            continue
        number = task // 2**32 % len(arms)
        seen = arms[number], Counter(zip(arms, outcomes, strict=True))
        if text in before:
            one, all_ = before[text]
            of_one += _growth(log(propensities[number]), is_equal=seen[0] == one)
            of_all += _growth(_log_chance(arms, propensities), is_equal=seen[1] == all_)
        before[text] = seen
    return max(of_one, of_all) > -log(CHANCE / 2)


def _growth(log_chance: float, *, is_equal: bool) -> float:
    return float(np.logaddexp(0, -log_chance) if is_equal else 0.0) - log(2)


def _log_chance(arms: Sequence[str], propensities: Sequence[float]) -> float:
    """Compute the log of the probability of these arms in any order (multinomial).

    It is no less than that of one rollout: a task may have kept the arm that it drew once.
    """
    logs = [log(propensity) for propensity in propensities]
    orders = lgamma(len(arms) + 1) - sum(lgamma(n + 1) for n in Counter(arms).values())
    return min(max(orders + sum(logs), min(logs)), 0.0)


def _connected(tasks: Integers, inputs: Integers, count: int) -> Integers:
    """Number the tasks that equal inputs connect, directly or by way of others: by the least one.

    Args:
        tasks: Number of the task of each rollout, shape [N].
        inputs: Number of its input, shape [N].
        count: Number of tasks, T.

    Returns:
        For each task the least task that it is connected with, shape [T].
    """
    least = np.arange(count)
    while True:
        of_input = np.full(int(inputs.max()) + 1, count)
        np.minimum.at(of_input, inputs, least[tasks])
        nearer = least.copy()
        np.minimum.at(nearer, tasks, of_input[inputs])
        # The least one of the least one, so that long chains need few turns.
        nearer = nearer[nearer]
        if (nearer == least).all():
            return least
        least = nearer
