"""Discounted sums within rollouts, the recursion under every return and advantage."""

import numpy as np

from otel_lightning.learner.credit.steps import Floats, Integers, first_of


def discounted(values: Floats, rollouts: Integers, gamma: float) -> Floats:
    """Sum what follows in the same rollout, discounted per call.

    y[t] = x[t] + gamma * y[t+1], and 0 after the last call. One pass of array operations per
    step of the longest rollout, over the rollouts that reach it: N additions in all.

    Args:
        values: What each call has, shape [N].
        rollouts: Number of each call's rollout; calls of a rollout are neighbours, in order [N].
        gamma: Discount per call.

    Returns:
        The sum from each call on, shape [N].

    Example:
        >>> discounted(np.array([0.0, 0.0, 1.0, 8.0]), np.array([0, 0, 0, 1]), 0.5).tolist()
        [0.25, 0.5, 1.0, 8.0]
    """
    sums = values.astype(np.float64)
    first = first_of(rollouts)
    at = np.append(first, len(values))[1:] - 1
    while at.size:
        goes_on = at > first
        at, first = at[goes_on] - 1, first[goes_on]
        sums[at] += gamma * sums[at + 1]
    return sums
