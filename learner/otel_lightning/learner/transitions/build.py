"""Compute the transitions of one bucket of tasks from its calls and rewards.

These functions are pure. Rollouts and tasks are numbers here; their names stay in the store.
"""

import numpy as np
import polars as pl

from otel_lightning.learner.credit import Steps, advantages
from otel_lightning.learner.credit.methods.return_to_go import return_to_go
from otel_lightning.learner.transitions.rewards import (
    in_order,
    outcomes,
    place,
    place_at_end,
    shuffle,
)
from otel_lightning.learner.transitions.settings import Settings
from otel_lightning.learner.transitions.splits import split

COLUMNS = (
    "rollout",
    "step",
    "trace_id",
    "span_id",
    "split",
    "behavior_logprob",
    "reward",
    "return_to_go",
    "advantage",
    "terminated",
    "truncated",
    "next_span_id",
)


def build(calls: pl.LazyFrame, rewards: pl.LazyFrame, settings: Settings) -> pl.DataFrame:
    """Compute reward, return, advantage, split and end of each call of some tasks.

    Args:
        calls: Rows of `staged_calls`.
        rewards: Rows of `staged_rewards`, of the same rollouts.
        settings: Credit method and its options, split, shuffling of rewards.

    Returns:
        One row per call, with `COLUMNS`, in the order of task, rollout and step.
    """
    # From here on, calls are identified by `row`, their position in the order of rollout and step.
    # The rows of one rollout are adjacent, which `discounted` and `rle_id` rely on.
    ordered = calls.with_columns(in_order()).sort("order").with_row_index("row")
    ended = ordered.with_columns(split(settings.held_out), **_ends())
    placed = _placed(ordered, rewards, settings.shuffle_rewards)
    rows, earned = pl.collect_all([ended, placed])
    return _with_credit(rows.with_columns(_sums(earned, rows.height)), settings).select(COLUMNS)


def steps_of(rows: pl.DataFrame) -> Steps:
    """Convert rows to the arrays that credit methods take."""
    return Steps(
        rewards=rows["reward"].to_numpy(),
        outcomes=rows["outcome_reward"].to_numpy(),
        tools=rows["tools"].to_numpy(),
        # `rle_id` numbers runs of equal values: 0, 1, 2, … without gaps, since the rows are sorted.
        rollouts=rows["rollout"].rle_id().cast(pl.Int64).to_numpy(),
        tasks=rows["task_hash"].rle_id().cast(pl.Int64).to_numpy(),
        states=(rows["state"].rank("dense").cast(pl.Int64) - 1).to_numpy(),
        truncated=rows["truncated"].to_numpy(),
    )


def _placed(calls: pl.LazyFrame, rewards: pl.LazyFrame, shuffle_seed: int | None) -> pl.LazyFrame:
    if shuffle_seed is None:
        return place(calls, rewards)
    return place_at_end(calls, shuffle(outcomes(rewards), shuffle_seed))


def _sums(earned: pl.DataFrame, calls: int) -> list[pl.Series]:
    """Add up the rewards of each call, in the given order.

    The fixed order makes the sums bit-identical however tasks are divided into buckets.
    """
    row = earned["row"].to_numpy()
    names = {"value": "reward", "outcome": "outcome_reward"}
    return [
        pl.Series(name, np.bincount(row, weights=earned[value].to_numpy(), minlength=calls))
        for value, name in names.items()
    ]


def _ends() -> dict[str, pl.Expr]:
    # The last row has no next row (null): it ends its rollout.
    goes_on = (pl.col("rollout") == pl.col("rollout").shift(-1)).fill_null(value=False)
    return {
        "next_span_id": pl.when(goes_on).then(pl.col("span_id").shift(-1)),
        "terminated": ~goes_on & (pl.col("outcome") == "terminated"),
        "truncated": ~goes_on & (pl.col("outcome") == "truncated"),
    }


def _with_credit(rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    steps = steps_of(rows)
    return rows.with_columns(
        return_to_go=pl.Series(return_to_go(steps, settings)),
        advantage=pl.Series(advantages(settings.credit, steps, settings)),
    )
