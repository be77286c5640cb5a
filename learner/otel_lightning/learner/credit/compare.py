"""Compare each value with its group: the core of every group-relative method."""

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.credit.steps import Options, sums

EPSILON = 1e-6
"""Added to a standard deviation before division, as in the code of verl and GiGPO."""
ROUNDING = 1e-12
"""A difference smaller than this share of the group's largest value is a rounding error, a tie."""


def compare(values: Floats, groups: Integers, options: Options) -> Floats:
    """Subtract from each value the baseline of its group.

    If `baseline` is mean, the result is x[i] - mean of the group. If it is leave_one_out, the
    result is x[i] - mean of the others, which is n / (n - 1) times as large. If `scale` is std,
    the result is divided by the group's standard deviation (n - 1 degrees of freedom) + EPSILON.
    The only value of a group gets 0, and so do values that differ only by rounding.

    Args:
        values: The values to compare, shape [M].
        groups: Number of the group of each value, from 0, shape [M].
        options: `baseline` and `scale`.

    Returns:
        The differences, shape [M].

    Example:
        >>> compare(np.array([1.0, 0.0, 0.0]), np.zeros(3, int), Options()).tolist()
        [1.0, -0.5, -0.5]
    """
    size = np.bincount(groups)
    # At least 1, so that a group of one value divides by 1. Its difference from its own mean is 0
    # anyway.
    divisor = np.maximum(size - 1, 1)
    mean = sums(values, groups) / np.maximum(size, 1)
    largest = np.zeros(len(size))  # [K]
    np.maximum.at(largest, groups, np.abs(values))
    differences = values - mean[groups]
    differences[np.abs(differences) <= ROUNDING * largest[groups]] = 0.0
    # x[i] - (S - x[i]) / (n - 1) = (x[i] - S / n) * n / (n - 1), with S the sum of the group: the
    # leave-one-out baseline only scales the difference from the mean.
    factor = size / divisor if options.baseline == "leave_one_out" else np.ones(len(size))
    if options.scale == "std":
        deviation = np.sqrt(sums(differences**2, groups) / divisor)
        factor = factor / (deviation + EPSILON)
    return differences * factor[groups]
