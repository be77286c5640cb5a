"""Find proposed variants that are worse than their parent beyond chance, to stop serving them."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from otel_lightning.learner.evaluate.gains import Compared
from otel_lightning.learner.evaluate.gate import Requirements, held_out_verdict
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.evaluate.reward_range import Rewards
from otel_lightning.learner.prompts.logged.rollouts import Rollouts


def ruled_out(rollouts: Rollouts, candidates: Mapping[str, str]) -> set[str]:
    """Return the variants whose gain over their parent is below 0 with 95 % confidence.

    Args:
        rollouts: Rewarded rollouts.
        candidates: The parent of each proposed variant.
    """
    return {
        name for name, parent in candidates.items() if _upper_bound(rollouts.rows, name, parent) < 0
    }


def _upper_bound(rows: pl.DataFrame, name: str, parent: str) -> float:
    """Bound the gain of a variant over its parent from above, by their traffic since it began.

    While both were served, a rollout got one of them at random. So the share of each among the
    two is its propensity.
    """
    began = rows.filter(pl.col("arm") == name)["time"].min()
    since_both = rows.filter(pl.col("arm").is_in([name, parent]))
    since_both = since_both if began is None else since_both.filter(pl.col("time") >= began)
    is_new = (since_both["arm"] == name).to_numpy()
    if not is_new.any() or is_new.all():
        return float("inf")
    rewards = since_both["outcome"].to_numpy().astype(np.float64)
    share = is_new.mean()
    compared = Compared(
        # Importance weights of "always this variant": 1 / propensity where it was served, else 0.
        new=Logged.without_model(rewards, is_new / share),
        live=Logged.without_model(rewards, ~is_new / (1 - share)),
        tasks=(since_both["task_hash"].rank("dense").to_numpy() - 1).astype(np.int64),
    )
    outcomes = rows["outcome"].to_numpy()
    if outcomes.min() == outcomes.max():
        return float("inf")  # equal rewards show no difference
    logged_range = Rewards((float(outcomes.min()), float(outcomes.max())))
    return held_out_verdict(compared, Requirements(logged_range)).upper
