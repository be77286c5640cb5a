"""Estimates of the value of each step of a task, from the rollouts of the task."""

from typing import NamedTuple

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import Steps, first_of, lengths, sums, tasks_of_rollouts

PENALTY = 1.0
"""Ridge penalty on the slope of the fitted value: a few calls hardly tilt the line, dozens do."""


class Values(NamedTuple):
    """V(s[t]) at each call, and the value after the last call of each rollout."""

    at: Floats  # [N]
    after: Floats  # [R]


def step_of(steps: Steps) -> Integers:
    """Return the position of each call in its rollout, from 0, shape [N]."""
    first = first_of(steps.rollouts)
    return np.arange(len(steps.rollouts)) - first[steps.rollouts]


def leave_one_out(returns: Floats, steps: Steps) -> Values:
    """Estimate the value of each step from the returns of the task's other rollouts at that step.

    V[i](t) = mean over the others j of G[j, min(t, T[j] - 1)]: a rollout that has already ended
    counts with its last return. If only the end is rewarded and gamma is 1, this is the baseline
    of RLOO at every step. The only rollout of a task has the value 0.

    Args:
        returns: Return of each call, shape [N].
        steps: The calls.

    Returns:
        The values.
    """
    task, length = tasks_of_rollouts(steps), lengths(steps)  # [R]
    # After its end a rollout counts with the return of its last call, so that rollouts of different
    # lengths can be compared at every step.
    last = returns[first_of(steps.rollouts) + length - 1]  # [R]
    offset, of_cell = _cells(task, length)
    cell, end = offset[steps.tasks] + step_of(steps), offset[task] + length
    ends_here = sums(last, end, len(of_cell))
    # On reversed arrays, the sum over later cells is a sum over earlier ones: the rollouts that
    # have ended by this step.
    ended = discounted(ends_here[::-1], of_cell[::-1], 1.0)[::-1]
    total = ended + sums(returns, cell, len(of_cell))
    other_rollouts = np.maximum(np.bincount(task) - 1, 1)
    # The rollout's own return is in the total of its cell, so it is subtracted before dividing by
    # the number of the others.
    return Values(
        (total[cell] - returns) / other_rollouts[steps.tasks],
        (total[end] - last) / other_rollouts[task],
    )


def _cells(task: Integers, length: Integers) -> tuple[Integers, Integers]:
    """Number one cell per step of each task, and one cell after the last step.

    Returns:
        The first cell of each task, shape [K], and the task of each cell.
    """
    width = np.zeros(task.max() + 1, dtype=np.int64)
    np.maximum.at(width, task, length + 1)
    # Exclusive cumulative sum: the cells of a task follow those of the tasks before it.
    return np.cumsum(width) - width, np.repeat(np.arange(len(width)), width)


def fitted(returns: Floats, steps: Steps) -> Values:
    """Estimate the value of each step by a line through the task's returns (ridge regression).

    V(t) = a + b * t minimises the sum of (G[t] - V(t))^2 over all calls of the task, plus
    PENALTY * b^2. The sum includes the call's own return, so the only rollout of a task is
    compared with its own trend.

    Args:
        returns: Return of each call, shape [N].
        steps: The calls.

    Returns:
        The values.

    Source:
        Duan et al., Benchmarking Deep Reinforcement Learning for Continuous Control (2016,
        arXiv:1604.06778): a linear baseline over features of time; here the step is the only one.
    """
    t, tasks = step_of(steps).astype(np.float64), steps.tasks
    size = np.maximum(np.bincount(tasks), 1)  # [K]
    mean_t, mean_g = (sums(x, tasks) / size for x in (t, returns))
    off_t, off_g = t - mean_t[tasks], returns - mean_g[tasks]
    # Centred at its means, the intercept of the line drops out: only the slope is left to fit, and
    # only the slope is penalised.
    covariance = sums(off_t * off_g, tasks)
    slope = covariance / (sums(off_t**2, tasks) + PENALTY)
    task = tasks_of_rollouts(steps)
    after = mean_g[task] + slope[task] * (lengths(steps) - mean_t[task])
    return Values(mean_g[tasks] + slope[tasks] * off_t, after)
