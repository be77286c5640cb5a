"""Values against the other values of their group, the core of every group-relative method."""

import numpy as np

from otel_lightning.learner.credit.steps import Floats, Integers, Options, sums

EPSILON = 1e-6
"""Added to standard deviations, as verl and GiGPO's code do: rounding is not amplified."""


def compare(values: Floats, groups: Integers, options: Options) -> Floats:
    """Compare each value with those of its group.

    With `baseline` mean: x[i] - mean of the group. With leave_one_out: x[i] - mean of the others,
    which is n / (n - 1) times as much. With `scale` std the result is divided by the group's
    standard deviation (n - 1 degrees of freedom) + EPSILON. Alone in its group a value gets 0.

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
    differences = values - mean[groups]
    factor = size / others if options.baseline == "leave_one_out" else np.ones(len(size))
    if options.scale == "std":
        deviation = np.sqrt(sums(differences**2, groups) / others)
        factor = factor / (deviation + EPSILON)
    return differences * factor[groups]
