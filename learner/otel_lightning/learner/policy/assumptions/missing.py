"""Rollouts without a reward: test whether rewards are missing at random, then drop or fill them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from otel_lightning.learner.errors import DataError

PERMUTATIONS = 2000
SIGNIFICANCE = 0.05
"""Significance level: below this p-value, the arms' shares of missing rewards differ."""
LOST_SIGNIFICANCE = 0.01
"""The same for attempts that were lost. Those that the end of a runner cut off are among them."""
WORST, DROP = "worst", "drop"


@dataclass(frozen=True, slots=True)
class Missing:
    """Rollouts that ended without a reward, by arm."""

    per_arm: dict[str, tuple[int, int]]
    """For each arm: number of rollouts without a reward, and of all rollouts."""
    treatment: str
    """`worst`, `drop`, or the number that replaces a missing reward."""

    @property
    def count(self) -> int:
        """Number of rollouts without a reward."""
        return sum(missing for missing, _ in self.per_arm.values())

    def __str__(self) -> str:
        """Say which share of each arm's rewards is missing, and how they were treated."""
        shares = ", ".join(
            f"{arm} {missing / count:.1%} of {count:,}"
            for arm, (missing, count) in self.per_arm.items()
        )
        done = {DROP: "left out", WORST: "counted as the worst reward"}
        became = done.get(self.treatment, f"counted as {self.treatment}")
        return f"Rollouts without a reward: {shares}; {became}."


def check_missing(
    joined: pl.DataFrame, treatment: str | None, worst: float | None = None
) -> tuple[pl.DataFrame, Missing]:
    """Count missing rewards by arm, and drop, replace or keep them.

    Args:
        joined: Columns arm and outcome, which is null where the rollout has no reward.
        treatment: `worst`, `drop`, a number, or None, which is allowed only if all arms miss
            rewards equally often. None keeps the rollouts: the gate assumes the worst of them.
        worst: Smallest possible reward; None uses the smallest logged reward.

    Raises:
        DataError: If the shares differ between arms beyond chance and no treatment is given, or
            the treatment is not known.
    """
    counted = joined.group_by("arm").agg(pl.col("outcome").null_count(), pl.len()).sort("arm")
    per_arm = {arm: (missing, count) for arm, missing, count in counted.iter_rows()}
    result = Missing(per_arm, treatment or DROP)
    if treatment is None and result.count and _differs(per_arm):
        raise DataError(
            f"Rewards are missing more often for one arm than for another: {_shares(per_arm)}. "
            "If failures leave no reward, an arm looks better the more it fails. Send the missing "
            "rewards, or choose with --missing: worst (a missing reward is the worst one), drop "
            "(it says nothing about the outcome), or a number."
        )
    if treatment is None:
        return joined, result
    if result.treatment == DROP:
        return joined.filter(pl.col("outcome").is_not_null()), result
    return joined.with_columns(pl.col("outcome").fill_null(_value(joined, result, worst))), result


def check_lost(per_arm: Mapping[str, tuple[int, int]]) -> None:
    """Refuse a log in which the attempts of one arm were lost more often than those of another.

    A lost attempt has no reward and is repeated. So an arm that makes the agent crash, or a server
    answer 500, gets further attempts for its bad rollouts.

    Args:
        per_arm: For each arm: number of attempts that were lost, and of all attempts.

    Raises:
        DataError: If the shares differ beyond chance.
    """
    lost = sum(number for number, _ in per_arm.values())
    if lost and _differs(per_arm, LOST_SIGNIFICANCE):
        raise DataError(
            f"Attempts were lost more often for one arm than for another: {_shares(per_arm)}. "
            "They have no reward and were repeated, so an arm that makes the agent crash looks "
            "better than it is. The column 'reason' of the table 'attempts' says how they ended. "
            "If that was not the arm's fault, say so with --missing drop."
        )


def _shares(per_arm: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"'{arm}' {m / n:.1%} of {n:,}" for arm, (m, n) in per_arm.items())


def _value(joined: pl.DataFrame, missing: Missing, worst: float | None) -> float:
    if missing.treatment == WORST and worst is not None:
        return worst
    if missing.treatment == WORST:
        return float(joined["outcome"].min())  # type: ignore[arg-type]
    try:
        value = float(missing.treatment)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(
            f"Unknown treatment '{missing.treatment}' of missing rewards. Choose --missing worst, "
            "drop or a finite number."
        )
    return value


def _differs(per_arm: Mapping[str, tuple[int, int]], significance: float = SIGNIFICANCE) -> bool:
    """Test by permutation whether the shares of missing rewards differ beyond chance.

    The statistic is Pearson's chi-square; permuting which rollouts miss their reward draws each
    arm's number from the multivariate hypergeometric distribution.
    """
    missing, counts = np.array(list(per_arm.values())).T
    total = int(missing.sum())
    expected = counts * total / counts.sum()
    rng = np.random.default_rng(0)
    drawn = rng.multivariate_hypergeometric(counts, total, size=PERMUTATIONS)
    # The chi-square term of the rewards that are not missing is proportional to this one, because
    # both counts of an arm have the same deviation. So the missing ones alone give the same test.
    statistics = ((drawn - expected) ** 2 / expected).sum(axis=1)
    observed = float(((missing - expected) ** 2 / expected).sum())
    # Many draws equal the observed statistic exactly, up to rounding; they count as at least as
    # extreme.
    return bool((statistics >= observed - 1e-9).mean() < significance)
