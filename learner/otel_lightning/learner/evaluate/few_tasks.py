"""The 95 % interval of a mean over tasks, also of few tasks; without numpy, slow to import.

Rollouts of one task are correlated, so a task is one observation. A bootstrap of few tasks is too
narrow: of five tasks it contains the true mean in 44 to 98 % of the cases, depending on the
rewards, and with equal tasks it has no width.
"""

import math
from collections.abc import Sequence

from otel_lightning.learner.evaluate.confidence import NORMAL_97_5

Interval = tuple[float, float]

STUDENT_97_5 = {1: 12.706204736174698, 2: 4.302652729749462}
"""97.5 % quantiles of Student's t at the degrees of freedom for which the expansion is rough."""


def interval_of_mean(
    sums: Sequence[float],
    rollouts: Sequence[int],
    imagined: Sequence[tuple[float, float]] = (),
) -> Interval | None:
    """Bound the mean reward of all rollouts, or the mean of a difference, with 95 % confidence.

    Without imagined rollouts this is Student's interval. A ratio of sums has the residuals
    sum - mean * rollouts, as in a sample of clusters. With imagined rollouts it is the normal
    interval of the real and the imagined ones together: it keeps a width if all tasks are equal,
    and suits values of 0 and 1, for which Student's interval of few tasks is too narrow.

    Args:
        sums: Sum of the values of each task.
        rollouts: Number of values of each task.
        imagined: Values that are added, each with the number of rollouts that it counts for.

    Returns:
        The interval; None if nothing tells how much tasks differ.

    Source:
        Cochran, Sampling techniques (3rd ed., 1977), eq. 6.12, for the ratio; Agresti & Coull
        (1998) and Agresti & Min, Simple improved confidence intervals for comparing matched
        proportions (2005), for the imagined values.

    Example:
        >>> [round(end, 3) for end in interval_of_mean([1.0, 2.0, 3.0], [1, 1, 1])]
        [-0.484, 4.484]
        >>> interval_of_mean([0.5, 0.5], [1, 1]) is None
        True
    """
    if not rollouts:
        return None
    usual = sum(rollouts) / len(rollouts)  # rollouts of a task
    tasks = len(rollouts) + sum(count for _, count in imagined) / usual
    mean = (sum(sums) + sum(value * count for value, count in imagined)) / (tasks * usual)
    squares = sum(
        ((total - mean * count) / usual) ** 2 for total, count in zip(sums, rollouts, strict=True)
    )
    if imagined:
        squares += sum((value - mean) ** 2 * count for value, count in imagined) / usual
        reach = NORMAL_97_5 * math.sqrt(squares) / tasks
    elif len(rollouts) == 1 or max(squares, 0.0) <= (1e-12 * mean) ** 2:
        return None  # equal tasks, up to rounding
    else:
        freedom = len(rollouts) - 1
        reach = student_97_5(freedom) * math.sqrt(squares / freedom / tasks)
    return mean - reach, mean + reach


def student_97_5(freedom: int) -> float:
    """Compute the 97.5 % quantile of Student's t, with an error of at most 0.1 %.

    Args:
        freedom: Degrees of freedom, from 1.

    Source:
        Abramowitz & Stegun, Handbook of mathematical functions (1964), 26.7.5.

    Example:
        >>> [round(student_97_5(freedom), 2) for freedom in (1, 4, 10, 100)]
        [12.71, 2.78, 2.23, 1.98]
    """
    if freedom in STUDENT_97_5:
        return STUDENT_97_5[freedom]
    x, v = NORMAL_97_5, freedom
    return (
        x
        + (x**3 + x) / (4 * v)
        + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * v**2)
        + (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * v**3)
        + (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / (92160 * v**4)
    )
