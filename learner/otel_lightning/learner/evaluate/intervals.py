"""Confidence intervals of a value: bootstrap, Bernstein and betting.

Each uses one observation per task, since rollouts of one task are correlated, and returns a
two-sided 95 % interval. The normal approximation is `Estimate.interval`.
"""

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.evaluate.betting import Scores, lower_bound
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.gains import per_task
from otel_lightning.learner.evaluate.off_policy import Estimate

Interval = tuple[float, float]

RESAMPLES = 1000
BLOCKS = 2000
"""Largest number of units that the bootstrap resamples. More tasks are put into this many random
blocks, which are resampled instead, so that the bootstrap stays fast."""


def by_task(estimate: Estimate, tasks: Integers) -> Estimate:
    """Average an estimate's parts within each task, so that each task counts once: shape [T]."""
    return Estimate(per_task(estimate.numerators, tasks), per_task(estimate.denominators, tasks))


def bootstrap(estimate: Estimate, seed: int = 0) -> Interval:
    """Bound a value by resampling tasks: the percentile interval.

    Source:
        Efron & Tibshirani, An introduction to the bootstrap (1993), chapter 13.
    """
    rng = np.random.default_rng(seed)
    numerators, denominators = _blocks(estimate, rng)
    count = len(numerators)
    values = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        drawn = rng.integers(count, size=count)
        total = denominators[drawn].sum()
        values[i] = numerators[drawn].sum() / total if total > 0 else np.nan
    # A resample with weight 0 has no value: count it as the worst for the lower end of the interval
    # and as the best for the upper end.
    unknown = np.isnan(values)
    low = np.where(unknown, -np.inf, values)
    high = np.where(unknown, np.inf, values)
    return (
        float(np.quantile(low, ALPHA / 2, method="inverted_cdf")),
        float(np.quantile(high, 1 - ALPHA / 2, method="inverted_cdf")),
    )


def empirical_bernstein(means: Floats, limits: Interval) -> Interval:
    """Bound the mean of values with known limits.

    Args:
        means: One value per task, shape [T].
        limits: Smallest and largest possible value.

    Source:
        Maurer & Pontil, Empirical Bernstein bounds and sample-variance penalization (2009),
        theorem 4, once on each side.
    """
    count = len(means)
    if count <= 1:
        return limits
    # Theorem 4 with delta = ALPHA / 2: half of the error probability on each side.
    log = float(np.log(2 / (ALPHA / 2)))
    spread = (2 * float(means.var(ddof=1)) * log / count) ** 0.5
    reach = spread + 7 * (limits[1] - limits[0]) * log / (3 * (count - 1))
    middle = float(means.mean())
    return max(limits[0], middle - reach), min(limits[1], middle + reach)


def betting(means: Floats, limits: Interval) -> Interval:
    """Bound the mean of values with known limits; valid at every look at growing data.

    Args:
        means: One value per task, shape [T].
        limits: Smallest and largest possible value.

    Source:
        Waudby-Smith & Ramdas, Estimating means of bounded random variables by betting (2024).
    """
    low = lower_bound([Scores(means, limits[0])], ALPHA / 2)
    # The upper bound is the lower bound of the negated values, mirrored.
    return low, -lower_bound([Scores(-means, -limits[1])], ALPHA / 2)


def _blocks(estimate: Estimate, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return numerators and denominators of the units to resample: tasks, or blocks of them."""
    count = len(estimate.numerators)
    if count <= BLOCKS:
        return estimate.numerators, estimate.denominators
    # A random assignment: blocks are exchangeable and almost equal in size, so resampling them
    # gives nearly the same variance as resampling tasks.
    block = rng.permutation(count) % BLOCKS
    return (
        np.bincount(block, estimate.numerators).astype(np.float64),
        np.bincount(block, estimate.denominators).astype(np.float64),
    )
