"""Choices without a propensity are left out: test whether that says something about their rewards.

A flag provider that is not ready yet serves its default, with no propensity and before anything is
known of the rollout. But if the propensity is lost because of how a rollout went, an arm looks
better or worse than it is.
"""

from math import erfc

import numpy as np
import polars as pl

from otel_lightning.collector.terminal.quantities import decimal
from otel_lightning.learner.arrays import Booleans, Floats, Integers
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.gains import task_numbers

SIGNIFICANCE = 0.001
"""Largest probability of a refusal, over all arms, if propensities are missing by chance."""
MIN_UNTOLD = 10
"""Smallest number of an arm's choices without a propensity that are tested."""


def check_untold(rows: pl.DataFrame) -> None:
    """Refuse choices whose propensity is missing more often after some rewards than after others.

    If only one arm lacks propensities, it is the default of a provider, which was not drawn; then
    nothing is tested.

    Args:
        rows: The choices with a reward: columns arm, outcome, propensity and task.

    Raises:
        DataError: If the rewards of an arm's choices with and without a propensity differ beyond
            chance.
    """
    untold = pl.col("propensity").is_null()
    counts = rows.group_by("arm").agg(untold.sum(), told=(~untold).sum()).sort("arm")
    some = counts.filter((pl.col("propensity") >= MIN_UNTOLD) & (pl.col("told") > 0))["arm"]
    if len(some) < 2:  # noqa: PLR2004 - one alone is the default
        return
    for arm in some:
        of_arm = rows.filter(pl.col("arm") == arm)
        lost = of_arm["propensity"].is_null().to_numpy()
        rewards = of_arm["outcome"].to_numpy()
        tasks = of_arm["task"].rank("dense").to_numpy().astype(np.int64)
        if len(some) * _p_value(rewards, lost, tasks) < SIGNIFICANCE:
            without, others = float(rewards[lost].mean()), float(rewards[~lost].mean())
            raise DataError(
                f"Of arm '{arm}' {lost.sum():,} choices have no propensity and a mean reward of "
                f"{decimal(without)}; the other {(~lost).sum():,} have {decimal(others)}: more "
                "than chance. To leave them out would make an arm look better or worse than it is. "
                "Record the propensity with each choice, however the rollout ends. If it is "
                "missing for a reason that was there before the choice, say so with --task-by id."
            )


def _p_value(rewards: Floats, lost: Booleans, tasks: Integers) -> float:
    """Test whether losses and rewards are correlated, by the normal approximation over tasks."""
    products = (lost - lost.mean()) * (rewards - rewards.mean())
    by_task = np.bincount(task_numbers(tasks), products)
    error = float((by_task**2).sum()) ** 0.5
    return erfc(abs(float(by_task.sum())) / error / 2**0.5) if error > 0 else 1.0
