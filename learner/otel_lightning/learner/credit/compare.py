"""Compare values within groups: the core of every group-relative method."""

import numpy as np

from otel_lightning.learner.credit.steps import Floats, Integers, Options, sums

EPSILON = 1e-6
"""Added to standard deviations, as verl and GiGPO's code do."""
ROUNDING = 1e-12
"""Differences below this share of the group's largest value are rounding errors: a tie."""


def compare(values: Floats, groups: Integers, options: Options) -> Floats:
    """Compare each value with those of its group.

    With `baseline` mean: x[i] - mean of the group. With leave_one_out: x[i] - mean of the others,
    which is n / (n - 1) times as much. With `scale` std the result is divided by the group's
    standard deviation (n - 1 degrees of freedom) + EPSILON. A value alone in its group gets 0,
    and so do values that are equal but for rounding.

    Args:
        values: What to compare, shape [M].
        groups: Number of each value's group, from 0, shape [M].
        options: `baseline` and `scale`.

    Returns:
        The differences, shape [M].

    Example:
        >>> compare(np.array([1.0, 0.0, 0.0]), np.zeros(3, int), Options()).tolist()
        [1.0, -0.5, -0.5]
    """
    size = np.bincount(groups)
    others = np.maximum(size - 1, 1)
    mean = sums(values, groups) / np.maximum(size, 1)
    largest = np.zeros(len(size))  # [K]
    np.maximum.at(largest, groups, np.abs(values))
    differences = values - mean[groups]
    differences[np.abs(differences) <= ROUNDING * largest[groups]] = 0.0
    factor = size / others if options.baseline == "leave_one_out" else np.ones(len(size))
    if options.scale == "std":
        deviation = np.sqrt(sums(differences**2, groups) / others)
        factor = factor / (deviation + EPSILON)
    return differences * factor[groups]
