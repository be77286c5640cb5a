"""Measure how far two ratings of the same rollouts agree, from their contingency table.

Rows are the values of the judge and columns the values of the labels, both in rising order. A
cell counts the rollouts that got this pair of values.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.errors import DataError

Counts = Floats
Values = Floats
RESAMPLES = 1000
"""Number of bootstrap samples."""
LEVELS = 500
"""Largest number of different values: the table has the square of it as cells."""


class Estimate(NamedTuple):
    """A statistic with its 95 % bootstrap interval; NaN where it is undefined."""

    value: float
    lower: float
    upper: float


class Agreement(NamedTuple):
    """The number of rollouts with both ratings, and four measures of agreement."""

    n: int
    kappa: Estimate
    weighted_kappa: Estimate
    spearman: Estimate
    kendall: Estimate


def agree(judge: Sequence[float], labels: Sequence[float], seed: int = 0) -> Agreement:
    """Compare two ratings of the same rollouts.

    If all labels are whole numbers, kappa rounds the judge's means to whole numbers (halves up),
    because it counts equal values. The rank correlations use the means unrounded.

    Args:
        judge: Score of each rollout by the judge, shape [N].
        labels: Label of each of the same rollouts, shape [N].
        seed: Seed of the bootstrap, which draws rollouts with replacement.

    Raises:
        DataError: If there are fewer than two rollouts, or more than `LEVELS` different values.

    Example:
        >>> found = agree([1, 2, 3, 3], [1, 2, 3, 2])
        >>> found.n, round(found.kappa.value, 4)
        (4, 0.6364)
    """
    if len(judge) < 2:  # noqa: PLR2004 - one rollout says nothing about agreement
        raise DataError(
            f"Only {number_of(len(judge), 'rollout has', 'rollouts have')} both a score and a "
            "label. Label more."
        )
    levels = np.unique(np.concatenate([judge, labels])).astype(np.float64)
    if len(levels) > LEVELS:
        raise DataError(f"{len(levels):,} different values are too many to compare; round them.")
    counts = cross(judge, labels, levels)
    whole = bool(np.all(np.mod(labels, 1) == 0))
    # Not `round`, which rounds 0.5 to the even number.
    categories = np.floor(levels + 0.5) if whole else levels
    drawn = np.array([_statistics(table, categories) for table in resampled(counts, seed)])
    statistics = zip(_statistics(counts, categories), drawn.T, strict=True)
    return Agreement(len(judge), *(_estimate(value, column) for value, column in statistics))


def resampled(counts: Counts, seed: int) -> Iterator[Counts]:
    """Draw `RESAMPLES` bootstrap samples of the rollouts, each as a table of counts."""
    generator = np.random.default_rng(seed)
    filled = np.nonzero(counts)
    n = int(counts.sum())
    for _ in range(RESAMPLES):
        table = np.zeros_like(counts)
        # Drawing n rollouts with replacement is one multinomial draw over the cells of the table,
        # which is much cheaper than n single draws.
        table[filled] = generator.multinomial(n, counts[filled] / n)
        yield table


def cross(rows: Sequence[float], columns: Sequence[float], levels: Values) -> Counts:
    """Count how often each pair of values occurs.

    Args:
        rows: The first rating, shape [N].
        columns: The second rating, shape [N].
        levels: The different values in rising order, shape [K].

    Returns:
        The counts, shape [K, K].
    """
    counts = np.zeros((len(levels), len(levels)))
    np.add.at(counts, (np.searchsorted(levels, rows), np.searchsorted(levels, columns)), 1)
    return counts


def cohen_kappa(counts: Counts, levels: Values | None = None) -> float:
    """Compute Cohen's kappa: agreement beyond chance, 1 - sum(w o) / sum(w e).

    Args:
        counts: The table, shape [K, K].
        levels: The value of each row and column, shape [K]. If given, a disagreement weighs the
            square of its size (quadratic kappa); otherwise every disagreement weighs 1.

    Returns:
        At most 1; 0 is the agreement by chance; NaN if both ratings are the same constant.

    Source:
        Cohen, Weighted kappa, Psychological Bulletin 70 (1968), eq. 9; without weights Cohen,
        Educational and Psychological Measurement 20 (1960), eq. 1.

    Example:
        >>> round(cohen_kappa(np.array([[20.0, 5.0], [10.0, 15.0]])), 6)
        0.4
    """
    expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    alike = 1 - np.eye(len(counts))
    # Weights of disagreement: 0 on the diagonal.
    weights = alike if levels is None else np.subtract.outer(levels, levels) ** 2
    chance = float((weights * expected).sum())
    return 1 - float((weights * counts).sum()) / chance if chance else np.nan


def spearman_rho(counts: Counts) -> float:
    """Compute Spearman's rank correlation; ties get the mean of their ranks.

    Returns:
        In [-1, 1]; NaN if one of the ratings is constant.

    Example:
        >>> round(spearman_rho(np.eye(3)), 6)
        1.0
    """
    cells = np.nonzero(counts)
    judge, labels = (np.repeat(level, counts[cells].astype(np.int64)) for level in cells)
    pairs = pl.DataFrame({"judge": judge, "labels": labels})
    rho = pairs.select(pl.corr("judge", "labels", method="spearman")).item()
    return np.nan if rho is None else float(rho)


def kendall_tau_b(counts: Counts) -> float:
    """Compute Kendall's tau-b: concordant minus discordant pairs, corrected for ties.

    Returns:
        In [-1, 1]; NaN if one of the ratings is constant.

    Source:
        Kendall, The treatment of ties in ranking problems, Biometrika 33 (1945).

    Example:
        >>> kendall_tau_b(np.eye(3)[::-1])
        -1.0
    """
    concordant, discordant = _ordered(counts), _ordered(counts[:, ::-1])
    # Pairs that are not tied in one rating: the factors under the root of tau-b.
    untied = [_pairs(counts.sum()) - _pairs(counts.sum(axis)).sum() for axis in (0, 1)]
    product = float(untied[0] * untied[1])
    return (concordant - discordant) / float(np.sqrt(product)) if product else np.nan


def _statistics(counts: Counts, categories: Values) -> tuple[float, float, float, float]:
    levels = np.unique(categories)
    fold = (categories[:, None] == levels).astype(np.float64)  # [K, levels]
    # Adds up the rows and columns that round to one category: shape [levels, levels].
    folded = fold.T @ counts @ fold
    kappas = cohen_kappa(folded), cohen_kappa(folded, levels)
    return *kappas, spearman_rho(counts), kendall_tau_b(counts)


def _estimate(value: float, drawn: Values) -> Estimate:
    defined = drawn[np.isfinite(drawn)]
    lower, upper = np.quantile(defined, [0.025, 0.975]) if defined.size else (np.nan, np.nan)
    return Estimate(value, float(lower), float(upper))


def _ordered(counts: Counts) -> float:
    """Count the pairs in which one rollout is greater in both ratings."""
    # Sum of all cells at or below and to the right of each cell, in one pass over the table.
    greater = counts[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1]
    return float((counts[:-1, :-1] * greater[1:, 1:]).sum())


def _pairs(n: Values) -> Values:
    return n * (n - 1) / 2
