"""Split tasks into those to learn from and those held out for the gate."""

import polars as pl

from otel_lightning.learner.task_splits import HELD_OUT, TRAIN


def split(held_out: float) -> pl.Expr:
    """Assign each task to a split by the hash of its id, the same on every day and machine.

    All rollouts of a task are in one split, so that no learned model is judged on tasks it saw.

    Args:
        held_out: Share of the tasks to hold out, in [0, 1].

    Returns:
        `heldout` or `train`, by the column `task_hash`: the first 64 bits of the SHA-256.

    Example:
        >>> tasks = pl.DataFrame({"task_hash": [0, 2**63, 2**64 - 1]}, {"task_hash": pl.UInt64})
        >>> tasks.select(split(0.5)).to_series().to_list()
        ['heldout', 'train', 'train']
    """
    # As `task_splits.position`: 53 bits are exact in a float, so no position is rounded up to 1.
    position = (pl.col("task_hash") // 2**11).cast(pl.Float64) / 2**53
    # A larger share holds out a superset of the tasks that a smaller one does, since only the
    # threshold moves.
    name = pl.when(position < held_out).then(pl.lit(HELD_OUT)).otherwise(pl.lit(TRAIN))
    return name.alias("split")
