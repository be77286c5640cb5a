"""Confidence bound of a mean from a fixed number of values, by bets that aim at the last one.

As in `betting`, a gambler who bets that the mean is above `m` cannot expect to get rich if it is
not. Here the number of values is known before, so each bet is as large as it takes to reach
1 / alpha by the last value. A noisy gain of a given size needs about half of the tasks that
`betting` needs. The price: one look only, and the values have to be in a random order.
"""

import numpy as np

from otel_lightning.learner.arrays import Booleans, Floats
from otel_lightning.learner.evaluate.betting import Scores

MAX_BET = 0.999
"""Largest share of the wealth that is bet, so that the smallest possible value leaves some."""
ASSUMED_SQUARE, ASSUMED_VALUES = 0.05, 2.0
"""The mean square of the values before any is seen, as a share of the squared width of their range,
and the number of values that it counts for."""
GRID = 401
"""Number of means that are tested for a bound."""


def log_wealth(scores: Scores, means: Floats, alpha: float) -> Floats:
    """Compute the logarithm of the wealth after betting that the mean is above each of `means`.

    With g[t] = (x[t] - m) / (m - lowest), which is at least -1, the wealth is
    K[t] = K[t-1] * (1 + f[t] * g[t]), from K[0] = 1. The bet
    f[t] = sqrt(2 * log(1 / (alpha * K[t-1])) / ((T - t + 1) * s[t])) depends on earlier values only
    (s is the mean square of g so far), and it is 0 once the wealth has reached 1 / alpha. If the
    mean is m or less, K is a non-negative supermartingale.

    Args:
        scores: Independent values in an order that does not depend on them, shape [T].
        means: Means to reject, each above `scores.lowest`, shape [M].
        alpha: 1 / alpha is the wealth to reach.

    Source:
        Voracek & Orabona, STaR-Bets: sequential target-recalculating bets for tighter confidence
        intervals (2025).
    """
    width = means - scores.lowest
    wealth = np.zeros_like(means)  # its logarithm
    # Paired differences range as far above 0 as below, so their range is twice `width` wide.
    squares = np.full_like(means, ASSUMED_VALUES * 4 * ASSUMED_SQUARE)
    for seen, value in enumerate(np.maximum(scores.values, scores.lowest)):
        gains = (value - means) / width
        missing = np.maximum(-np.log(alpha) - wealth, 0.0)
        left = len(scores.values) - seen
        bets = np.sqrt(2 * missing * (seen + ASSUMED_VALUES) / (left * squares))
        wealth += np.log1p(np.minimum(bets, MAX_BET) * gains)
        squares += gains**2
    return wealth


def rejected(scores: Scores, means: Floats, alpha: float) -> Booleans:
    """Test for each of several means whether the true one is above it.

    By Markov's inequality the wealth is 1 / alpha or more with probability alpha at most if the
    true mean is m or less, whatever the values are like.

    Args:
        scores: Independent values in an order that does not depend on them, shape [T].
        means: Means to reject, each above `scores.lowest`, shape [M].
        alpha: Largest probability that a mean is rejected that the true one is not above.

    Returns:
        Whether each mean is rejected, shape [M].

    Example:
        >>> rejected(Scores(np.full(40, 0.5), lowest=0.0), np.array([0.4, 0.49]), 0.05).tolist()
        [True, False]
    """
    # A wealth that equals 1 / alpha up to rounding has reached it.
    return np.asarray(log_wealth(scores, means, alpha) >= -np.log(alpha) - 1e-9, dtype=np.bool_)


def lower_bound(scores: Scores, highest: float, alpha: float) -> float:
    """Bound a mean from below with confidence 1 - alpha, one-sided.

    Args:
        scores: Independent values in an order that does not depend on them, shape [T].
        highest: The greatest possible value, known without looking at the values.
        alpha: Largest probability that the bound is above the mean.

    Returns:
        The largest mean on a grid such that it and all below are rejected; the smallest possible
        value if there is none.
    """
    # The wealth need not fall as the mean to reject rises, so bisection could miss a mean that is
    # not rejected.
    grid = np.linspace(scores.lowest, highest, GRID)
    kept = ~rejected(scores, grid[1:], alpha)
    return float(grid[int(np.argmax(kept)) if kept.any() else -1])


def bound_beside(scores: Scores, highest: float, threshold: float, alpha: float) -> float:
    """Bound a mean as `lower_bound` does, so that it is above `threshold` if that is rejected.

    The bound is on a coarse grid, so the mean that decides is tested by itself.
    """
    bound = lower_bound(scores, highest, alpha)
    if not len(scores.values) or not scores.lowest < threshold < highest:
        return bound
    if rejected(scores, np.array([threshold]), alpha)[0]:
        return max(bound, float(np.nextafter(threshold, np.inf)))
    return min(bound, threshold)
