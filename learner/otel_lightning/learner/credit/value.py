"""What a task is worth from a step on, estimated from its rollouts."""

from typing import NamedTuple

import numpy as np

from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import (
    Floats,
    Integers,
    Steps,
    first_of,
    lengths,
    sums,
    tasks_of_rollouts,
)

PENALTY = 1.0
"""On the slope of the fitted value: two calls hardly bend it, dozens do."""


class Values(NamedTuple):
    """V(s[t]) of each call, and what is expected after the last."""

    at: Floats  # [N]
    after: Floats  # [R]


def step_of(steps: Steps) -> Integers:
    """Count each call's place in its rollout, from 0, shape [N]."""
    first = first_of(steps.rollouts)
    return np.arange(len(steps.rollouts)) - first[steps.rollouts]


def leave_one_out(returns: Floats, steps: Steps) -> Values:
    """Value each step by the returns of the task's other rollouts from the same step on.

    V[i](t) = mean over the others j of G[j, min(t, T[j] - 1)]: a rollout that has ended counts
    with its last return. Where only the end is rewarded and gamma is 1, that is RLOO's baseline
    at every step. A rollout alone in its task has the value 0.

    Args:
        returns: Return of each call, shape [N].
        steps: The calls.

    Returns:
        The values.
    """
    task, length = tasks_of_rollouts(steps), lengths(steps)  # [R]
    last = returns[first_of(steps.rollouts) + length - 1]  # [R]
    offset, of_cell = _cells(task, length)
    cell, end = offset[steps.tasks] + step_of(steps), offset[task] + length
    ends_here = sums(last, end, len(of_cell))
    # Backwards, what follows is what came before: all that have ended by then.
    ended = discounted(ends_here[::-1], of_cell[::-1], 1.0)[::-1]
    total = ended + sums(returns, cell, len(of_cell))
    others = np.maximum(np.bincount(task) - 1, 1)
    return Values((total[cell] - returns) / others[steps.tasks], (total[end] - last) / others[task])


def _cells(task: Integers, length: Integers) -> tuple[Integers, Integers]:
    """Lay out a cell for each step of each task, and one for after the last.

    Returns:
        Where each task's cells begin, shape [K], and each cell's task.
    """
    width = np.zeros(task.max() + 1, dtype=np.int64)
    np.maximum.at(width, task, length + 1)
    return np.cumsum(width) - width, np.repeat(np.arange(len(width)), width)


def fitted(returns: Floats, steps: Steps) -> Values:
    """Value each step by a line through the task's returns, fitted by ridge regression.

    V(t) = a + b * t with the least sum of (G[t] - V(t))^2 + PENALTY * b^2 over all calls of the
    task, the call's own included: a rollout alone in its task is compared with its own trend.

    Args:
        returns: Return of each call, shape [N].
        steps: The calls.

    Returns:
        The values.

    Source:
        Duan et al., Benchmarking Deep Reinforcement Learning for Continuous Control (2016,
        arXiv:1604.06778): a linear baseline over features of time; here time is all there is.
    """
    t, tasks = step_of(steps).astype(np.float64), steps.tasks
    size = np.maximum(np.bincount(tasks), 1)  # [K]
    mean_t, mean_g = (sums(x, tasks) / size for x in (t, returns))
    off_t, off_g = t - mean_t[tasks], returns - mean_g[tasks]
    covariance = sums(off_t * off_g, tasks)
    slope = covariance / (sums(off_t**2, tasks) + PENALTY)
    task = tasks_of_rollouts(steps)
    after = mean_g[task] + slope[task] * (lengths(steps) - mean_t[task])
    return Values(mean_g[tasks] + slope[tasks] * off_t, after)
