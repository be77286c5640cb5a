"""Assign each judgement to a model call and add up the rewards.

A judgement of a whole rollout is its outcome, and counts at the last call. A judgement that names
a call counts at that call; one that was sent during the rollout, at the last call before it. If
the same thing was judged several times, only the last judgement counts. The reward of an
unselected or failed call moves to the last selected call before it, or to the first call if no
selected call comes before.
"""

import polars as pl

AFTER_ALL = 2**31 - 1
"""Step of a judgement of the whole rollout; it sorts after every call."""
STEPS = 2**32
"""Upper bound on the steps of a rollout, to pack rollout and step into one integer."""


def in_order() -> pl.Expr:
    """Combine rollout and step into one number by which calls and judgements are sorted."""
    step = pl.col("step").fill_null(AFTER_ALL).cast(pl.Int64)
    return (pl.col("rollout") * STEPS + step).alias("order")


def last_judged(rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Drop judgements that were replaced by a later one of the same name, rollout and step.

    Args:
        rewards: Columns reward_id, rollout, name, value, time, step, emitted. A reward that was
            emitted during the rollout replaces no other.
    """
    # Null for all judgements that may replace each other, since nulls are equal to `unique`. An
    # emitted reward has its own id here, so no other row is equal to it.
    its_own = pl.when("emitted").then("reward_id")
    return (
        # The id breaks ties of time, so that the same judgement wins on every machine.
        rewards.sort("time", "reward_id")
        .with_columns(its_own=its_own)
        .unique(["rollout", "name", "step", "its_own"], keep="last", maintain_order=True)
        .drop("its_own")
    )


def place(calls: pl.LazyFrame, rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Find the call at which each reward counts.

    Args:
        calls: Columns row, rollout and order of the calls that can get rewards, sorted by order.
        rewards: Columns as in `last_judged`; if step is null, the reward judges the whole rollout.

    Returns:
        One row per reward; the rewards of a call are in time order. Columns: row, value, and
        outcome, which is the value if the reward judges the whole rollout, and 0 otherwise.
    """
    whole = pl.col("step").is_null()
    judged = last_judged(rewards).select(
        "rollout",
        "value",
        in_order(),
        outcome=pl.when(whole).then("value").otherwise(0.0),
    )
    places = calls.select("row", "order", before="rollout")
    first = pl.col("row").cast(pl.Int64).fill_null(-1) + 1  # the call before is of another rollout
    return (
        judged.sort("order", maintain_order=True)
        # The nearest call at or before the judgement, over all rollouts: it may belong to the
        # rollout before, which is corrected below.
        .join_asof(places, on="order", check_sortedness=False)
        .with_columns(
            row=pl.when(pl.col("before") == pl.col("rollout")).then("row").otherwise(first)
        )
        .select("value", "outcome", "row")
    )


def outcomes(rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Add up the rewards of each rollout, sorted by rollout number.

    Returns:
        Columns rollout, outcome.
    """
    judged = last_judged(rewards).group_by("rollout", maintain_order=True)
    return judged.agg(outcome=pl.sum("value")).sort("rollout")


def shuffle(outcomes: pl.LazyFrame, seed: int) -> pl.LazyFrame:
    """Permute the outcomes among rollouts: a negative control with nothing to learn."""
    return outcomes.with_columns(pl.col("outcome").shuffle(seed))


def place_at_end(calls: pl.LazyFrame, outcomes: pl.LazyFrame) -> pl.LazyFrame:
    """Assign the outcome of each rollout to its last call; same columns as `place`."""
    last = calls.group_by("rollout").agg(pl.max("row"))
    return outcomes.join(last, on="rollout").select("row", "outcome", value="outcome")
