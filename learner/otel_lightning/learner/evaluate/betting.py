"""Confidence bounds of a mean by betting, which need only the smallest possible value.

A gambler who bets that the mean is above `m` cannot expect to get rich if it is not. If the wealth
reaches 1 / alpha, `m` is rejected with error probability alpha. This holds for any number of
values, so the bounds stay valid if one looks at growing data every day.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from otel_lightning.learner.arrays import Floats

FRACTIONS: Floats = 0.95 * np.exp2(-np.arange(13.0))
"""Bet sizes as fractions of the wealth. One gambler plays each size; their wealth is added up."""
PORTFOLIO: Floats = 0.5 / len(FRACTIONS) + 0.5 * FRACTIONS / FRACTIONS.sum()
"""Initial wealth of each gambler. Large bets get more, since they are best for few values."""
STEPS = 30
"""Number of bisection steps in the search for a bound."""


class Scores(NamedTuple):
    """Independent values, one per task, shape [T], and a lower bound of every possible value.

    `lowest` must be known without looking at the values; else the confidence is not valid.
    """

    values: Floats
    lowest: float


def log_wealth(scores: Scores, mean: float) -> float:
    """Compute the logarithm of the wealth after betting that the mean is above `mean`.

    K = sum over f of p[f] * product over t of 1 + f * (x[t] - m) / (m - lowest), with p the
    portfolio. If the mean is m or less, K is a non-negative supermartingale that begins at 1.

    Args:
        scores: The values and their smallest possible value.
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
        alpha: Largest probability that the bound is above the mean.

    Returns:
        The bound; the smallest possible value if no mean can be rejected.

    Example:
        >>> round(lower_bound([Scores(np.full(100, 0.5), lowest=0.0)]), 2)
        0.48
    """
    # The mean is at least `low` for certain, and no mean above the largest sample mean can be
    # rejected: the bound is between both.
    low = max(scores.lowest for scores in several)
    high = max(float(scores.values.mean()) for scores in several)
    if high <= low:
        return low
    counted = [_counted(scores) for scores in several]
    # The wealth falls as the mean to reject rises, so bisection finds where it crosses 1 / alpha.
    for _ in range(STEPS):
        middle = (low + high) / 2
        if not low < middle < high:  # no floating-point number is between them
            break
        wealth = np.logaddexp.reduce([_log_wealth(scores, middle) for scores in counted])
        # Each set of scores starts with 1 / n of the wealth. The average of supermartingales is one
        # too, so Ville's inequality holds: P(wealth ever >= 1 / alpha) <= alpha.
        if wealth - np.log(len(counted)) >= -np.log(alpha):
            low = middle
        else:
            high = middle
    return low


def p_value(several: Sequence[Scores], mean: float) -> float:
    """Compute the smallest alpha at which `lower_bound` is above a mean: 1 / wealth, at most 1.

    Args:
        several: As for `lower_bound`.
        mean: The mean to reject.

    Source:
        Shafer, Shen, Vereshchagin & Vovk, Test martingales, Bayes factors and p-values (2011).

    Example:
        >>> round(p_value([Scores(np.full(10, 0.5), lowest=0.0)], 0.25), 3)
        0.004
    """
    low = max(scores.lowest for scores in several)
    if mean <= low:
        return 0.0 if mean < low else 1.0
    wealth = np.logaddexp.reduce([log_wealth(scores, mean) for scores in several])
    return float(np.exp(-max(wealth - np.log(len(several)), 0.0)))


class _Counted(NamedTuple):
    values: Floats
    times: Floats
    lowest: float


def _counted(scores: Scores) -> _Counted:
    """Count equal values, since rewards have few distinct values: the wealth is then cheaper.

    Values that rounding put below the smallest possible value are raised to it.
    """
    values, times = np.unique(np.maximum(scores.values, scores.lowest), return_counts=True)
    return _Counted(values, times.astype(np.float64), scores.lowest)


def _log_wealth(counted: _Counted, mean: float) -> float:
    # The largest loss is exactly 1 (at the smallest possible value), so a bet of a fraction below 1
    # never loses all of the wealth and log1p stays finite.
    gains = (counted.values - mean) / (mean - counted.lowest)
    growth: Floats = np.log1p(np.multiply.outer(FRACTIONS, gains)) @ counted.times
    # In logarithms, because the wealth of a million values overflows a float.
    return float(np.logaddexp.reduce(growth + np.log(PORTFOLIO)))
