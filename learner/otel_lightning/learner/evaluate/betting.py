"""Confidence bounds of a mean by betting, which need only the least possible value.

A gambler who bets that the mean is above `m` cannot get rich if it is not. Where the wealth
reaches 1 / alpha, `m` is rejected with error probability alpha, at whatever number of values one
looks: the bounds stay true when data is looked at every day.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FRACTIONS: Floats = 0.95 * np.exp2(-np.arange(13.0))
"""Shares of the wealth that are bet; a portfolio of all of them is held."""
PORTFOLIO: Floats = 0.5 / len(FRACTIONS) + 0.5 * FRACTIONS / FRACTIONS.sum()
"""Part of the wealth that each share begins with: large bets first, since they suit few values."""
STEPS = 30
"""Halvings of the interval in which a bound is searched."""


class Scores(NamedTuple):
    """Independent values, one a task, whose mean is asked for, shape [T].

    `lowest` must be a bound that no value can be below, known without looking at the values.
    """

    values: Floats
    lowest: float


def log_wealth(scores: Scores, mean: float) -> float:
    """Compute the logarithm of the wealth after betting that the mean is above `mean`.

    K = sum over f of p[f] * product over t of 1 + f * (x[t] - m) / (m - lowest), with p the
    portfolio. If the mean is m or less, K is a non-negative supermartingale that begins at 1.

    Args:
        scores: The values and their least possible value.
        mean: The mean to reject, m; above `scores.lowest`.

    Source:
        Waudby-Smith & Ramdas, Estimating means of bounded random variables by betting (2024),
        sections 4.1 and 4.4 (hedged capital over a grid).
    """
    return _log_wealth(_counted(scores), mean)


def lower_bound(several: Sequence[Scores], alpha: float = 0.05) -> float:
    """Bound a mean from below with confidence 1 - alpha, one-sided.

    Args:
        several: One or more sets of scores with the same mean; the wealth is split between them.
        alpha: Probability that the bound is above the mean.

    Returns:
        The bound; the least possible value if nothing can be rejected.

    Example:
        >>> round(lower_bound([Scores(np.full(100, 0.5), lowest=0.0)]), 2)
        0.48
    """
    low = max(scores.lowest for scores in several)
    high = max(float(scores.values.mean()) for scores in several)
    if high <= low:
        return low
    counted = [_counted(scores) for scores in several]
    # The wealth falls as the mean to reject rises, so halving finds where it crosses 1 / alpha.
    for _ in range(STEPS):
        middle = (low + high) / 2
        if not low < middle < high:  # no number is between them
            break
        wealth = np.logaddexp.reduce([_log_wealth(one, middle) for one in counted])
        if wealth - np.log(len(counted)) >= -np.log(alpha):
            low = middle
        else:
            high = middle
    return low


class _Counted(NamedTuple):
    values: Floats
    times: Floats
    lowest: float


def _counted(scores: Scores) -> _Counted:
    """Count equal values, since most rewards are one of a few; rounding goes below no least one."""
    values, times = np.unique(np.maximum(scores.values, scores.lowest), return_counts=True)
    return _Counted(values, times.astype(np.float64), scores.lowest)


def _log_wealth(counted: _Counted, mean: float) -> float:
    gains = (counted.values - mean) / (mean - counted.lowest)
    growth: Floats = np.log1p(np.multiply.outer(FRACTIONS, gains)) @ counted.times
    return float(np.logaddexp.reduce(growth + np.log(PORTFOLIO)))
