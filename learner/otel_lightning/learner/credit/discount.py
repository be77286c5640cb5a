"""Discounted sums within rollouts: the recursion in every return and advantage."""

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.credit.steps import first_of


def discounted(values: Floats, rollouts: Integers, gamma: float) -> Floats:
    """Sum the values from each call to the end of its rollout, discounted per call.

    y[t] = x[t] + gamma * y[t+1], and y = 0 after the last call. Each pass of array operations
    handles one step of all rollouts that are long enough, so there are N additions in total.

    Args:
        values: The value of each call, shape [N].
        rollouts: Number of the rollout of each call, shape [N]. The calls of a rollout must be
            adjacent and in time order.
        gamma: Discount per call, in [0, 1].

    Returns:
        The sum from each call on, shape [N].

    Example:
        >>> discounted(np.array([0.0, 0.0, 1.0, 8.0]), np.array([0, 0, 0, 1]), 0.5).tolist()
        [0.25, 0.5, 1.0, 8.0]
    """
    sums = values.astype(np.float64)
    first = first_of(rollouts)
    # `at` begins at the last call of every rollout and moves one call back in each pass. Invariant:
    # sums[at] is final, and so is every later call of that rollout.
    at = np.append(first, len(values))[1:] - 1
    while at.size:
        goes_on = at > first
        at, first = at[goes_on] - 1, first[goes_on]
        sums[at] += gamma * sums[at + 1]
    return sums
