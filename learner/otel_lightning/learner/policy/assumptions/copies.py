"""Count task ids as one task where their rollouts are copies: the same input and the same draw.

The gate takes each task as one observation. A log that was multiplied, with a new task id for each
copy, would have more observations than anybody made. Equal inputs alone prove nothing: many users
ask the same question. But if each rollout drew its own arm, rollouts with the same input have the
same arm only as often as the propensities say.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from math import lgamma, log

import numpy as np
import polars as pl

from otel_lightning.learner.arrays import Integers

SIGNIFICANCE = 0.001
"""Largest allowed probability that independent draws are taken for copies."""
MAX_TASK_SHARE = 0.1
"""Largest share of the tasks that a text may have and still tell tasks apart. A text that more
tasks share, such as a greeting, says nothing about the task."""


def with_telling_texts(rows: pl.DataFrame, tasks: int) -> pl.DataFrame:
    """Select the rollouts whose text can tell tasks apart, because few tasks have it.

    Args:
        rows: The choices: columns task_hash and input.
        tasks: Number of all tasks.
    """
    return rows.filter(pl.n_unique("task_hash").over("input") <= max(MAX_TASK_SHARE * tasks, 1))


def with_common_tasks(rows: pl.DataFrame, shared: pl.DataFrame) -> pl.DataFrame:
    """Give task ids that a shared value connects, directly or through other tasks, a common task.

    Args:
        rows: The choices: column task_hash.
        shared: Columns row, the number of a choice, and value: the values that connect, such as
            hashes of the user's text. A choice may have several, or none.

    Returns:
        The rows, in which connected tasks have one `task_hash`.
    """
    if shared.is_empty():
        return rows
    names, tasks = np.unique(rows["task_hash"].to_numpy(), return_inverse=True)
    values = np.unique(shared["value"].to_numpy(), return_inverse=True)[1]
    groups = _connected(tasks[shared["row"].to_numpy()], values, len(names))
    together = np.bincount(groups, minlength=len(names))
    # The split holds out the tasks with the smallest hashes, and the least of several hashes is
    # often small. It is hashed again, so that common tasks are not held out more often than others.
    common = names.copy()
    for first in np.flatnonzero(together > 1):
        common[first] = int(sha256(f"copies of {names[first]}".encode()).hexdigest()[:16], 16)
    return rows.with_columns(task_hash=pl.Series(common[groups[tasks]], dtype=pl.UInt64))


def drawn_together(rows: pl.DataFrame) -> bool:
    """Test whether tasks with the same input have the same arms beyond chance.

    Each task is compared with the previous task that has the same input, in two ways: by the arm of
    one rollout, chosen by the hash of the task; and by the arms and outcomes of all its rollouts,
    in any order.

    Each way is a bet that the two are equal. If arms are drawn independently, the payoff
    1[equal] / p, where p is the probability of these arms, is at most 1 on average. Half of the
    capital is bet on each comparison, so it is multiplied by 1/2 + 1[equal] / (2 p). Then a capital
    that began as 1 reaches 1 / alpha with a probability of at most alpha, the significance level.
    Because only half is bet, propensities that are slightly wrong do little harm.

    Args:
        rows: Choices whose text can tell tasks apart, in time order: columns task_hash, input, arm,
            outcome and propensity.

    Source:
        Ville's inequality, as in Shafer & Vovk, Game-theoretic foundations (2019), section 2.1.
    """
    columns = rows.select("input", "task_hash", "arm", "outcome", "propensity").fill_nan(None)
    tasks = columns.group_by("input", "task_hash", maintain_order=True).agg(pl.all())
    of_one = of_all = 0.0  # log of the capital of each way
    before: dict[int, tuple[object, object]] = {}
    for text, task, arms, outcomes, propensities in tasks.iter_rows():
        if None in propensities:
            continue
        number = task // 2**32 % len(arms)  # the same in each run, and not chosen by the outcome
        seen = arms[number], Counter(zip(arms, outcomes, strict=True))
        if text in before:
            one, all_ = before[text]
            of_one += _growth(log(propensities[number]), is_equal=seen[0] == one)
            of_all += _growth(_log_chance(arms, propensities), is_equal=seen[1] == all_)
        before[text] = seen
    # Half of the significance level for each of the two ways.
    return max(of_one, of_all) > -log(SIGNIFICANCE / 2)


def _growth(log_chance: float, *, is_equal: bool) -> float:
    """Return by how much the log of the capital grows: log(1/2 + 1[equal] / (2 p))."""
    return float(np.logaddexp(0, -log_chance) if is_equal else 0.0) - log(2)


def _log_chance(arms: Sequence[str], propensities: Sequence[float]) -> float:
    """Compute the log of the probability of these arms in any order (multinomial).

    It is at least the probability of the least likely arm: a task may draw its arm once and keep it
    for all rollouts.
    """
    logs = [log(propensity) for propensity in propensities]
    orders = lgamma(len(arms) + 1) - sum(lgamma(n + 1) for n in Counter(arms).values())
    return min(max(orders + sum(logs), min(logs)), 0.0)


def _connected(tasks: Integers, inputs: Integers, count: int) -> Integers:
    """Find the smallest task that equal inputs connect each task with, in any number of steps.

    Args:
        tasks: Number of the task of each rollout, shape [N].
        inputs: Number of its input, shape [N].
        count: Number of tasks, T.

    Returns:
        The smallest number among the tasks that each task is connected with, shape [T].
    """
    least = np.arange(count)
    while True:
        of_input = np.full(int(inputs.max()) + 1, count)
        np.minimum.at(of_input, inputs, least[tasks])
        nearer = least.copy()
        np.minimum.at(nearer, tasks, of_input[inputs])
        # Also take over what that task found, so that long chains need few rounds.
        nearer = nearer[nearer]
        if (nearer == least).all():
            return least
        least = nearer
