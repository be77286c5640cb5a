"""Reasons to doubt a gain: does the reward go with the length, and do judges agree with it?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers

RESAMPLES = 1_000
MIN_PAIRS = 10
"""Fewer rollouts tell nothing about a correlation."""


class Correlation(NamedTuple):
    """Spearman's rank correlation of the outcome with another measure."""

    measure: str
    value: float
    low: float
    """Lower end of the 95 % interval, by bootstrap over tasks."""
    high: float
    rollouts: int
    points: tuple[tuple[float, float], ...]
    """The measure and the outcome of each rollout."""


def correlations(outcomes: Iterable[Mapping[str, Any]]) -> list[Correlation]:
    """Correlate outcomes with output tokens and with each judge.

    Args:
        outcomes: Columns rollout_id, task_hash, outcome, output_tokens, source and score; a rollout
            that several judges scored has several rows.
    """
    by_measure: dict[str, dict[str, tuple[float, float, int]]] = defaultdict(dict)
    for row in outcomes:
        if row["output_tokens"] is not None:
            length = (float(row["output_tokens"]), row["outcome"], row["task_hash"])
            by_measure["output tokens"][row["rollout_id"]] = length
        if row["source"] is not None:
            score = (row["score"], row["outcome"], row["task_hash"])
            by_measure[row["source"].partition("@")[0]][row["rollout_id"]] = score
    correlations = (
        _correlation(name, [*rows.values()]) for name, rows in sorted(by_measure.items())
    )
    return [correlation for correlation in correlations if correlation is not None]


def _correlation(measure: str, rows: Sequence[tuple[float, float, int]]) -> Correlation | None:
    across = np.array([row[0] for row in rows])
    outcomes = np.array([row[1] for row in rows])
    tasks = np.unique([row[2] for row in rows], return_inverse=True)[1]
    value = rank_correlation(across, outcomes)
    if len(rows) < MIN_PAIRS or value is None:
        return None
    low, high = _interval(across, outcomes, tasks)
    points = tuple(zip(across.tolist(), outcomes.tolist(), strict=True))
    return Correlation(measure, value, low, high, len(rows), points)


def rank_correlation(first: Floats, second: Floats) -> float | None:
    """Compute Spearman's rank correlation; None if one of the two is constant.

    Source:
        Spearman, The proof and measurement of association between two things (1904).

    Example:
        >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 15.0]))
        0.5
    """
    ranks = [_ranks(values) for values in (first, second)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    # Rounded, so that the same store gives the same bytes on every CPU.
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 12)


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value; equal values have the mean of their ranks."""
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    # A run of c equal values ends at rank e and has the mean rank e - (c - 1) / 2.
    ranks: Floats = (ends - (counts - 1) / 2)[number]
    return ranks


def _interval(across: Floats, outcomes: Floats, tasks: Integers) -> tuple[float, float]:
    """Resample whole tasks, because rollouts of one task are alike. The seed is fixed.

    Ranks are those among all rollouts, so that a resample is a weighted sum over tasks.
    """
    first, second = (_ranks(values) / len(values) for values in (across, outcomes))
    # Sums that a correlation needs: n, x, y, x^2, y^2, x y. They add up over tasks.
    products = (np.ones_like(first), first, second, first**2, second**2, first * second)
    sums = np.stack([np.bincount(tasks, product) for product in products], axis=1)  # [T, 6]
    random = np.random.default_rng(0)
    drawn = np.stack([_drawn(random, len(sums)) @ sums for _ in range(RESAMPLES)])  # [R, 6]
    number, x, y, xx, yy, xy = drawn.T
    spread = np.sqrt((number * xx - x**2).clip(0) * (number * yy - y**2).clip(0))
    varies = spread > 0
    low, high = np.quantile((number * xy - x * y)[varies] / spread[varies], [0.025, 0.975])
    return float(low), float(high)


def _drawn(random: np.random.Generator, tasks: int) -> Floats:
    """Return how often each task is in one resample, shape [T]."""
    return np.bincount(random.integers(0, tasks, tasks), minlength=tasks).astype(np.float64)
