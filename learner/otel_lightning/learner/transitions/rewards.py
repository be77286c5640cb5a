"""Turn judgements into one reward per model call.

A judgement of a whole rollout is its outcome and counts at its last call. A judgement that names a
call, or that was sent during the rollout, counts at that call. If something was judged several
times, the last judgement counts. The reward of an unselected or failed call moves to the last
selected call before it, or to the first if there is none before it.
"""

import polars as pl

AFTER_ALL = 2**31 - 1
"""Step of a judgement of the whole rollout: after every call."""
STEPS = 2**32
"""More steps than any rollout has."""


def in_order() -> pl.Expr:
    """Combine rollout and step into one number that sorts calls and judgements."""
    step = pl.col("step").fill_null(AFTER_ALL).cast(pl.Int64)
    return (pl.col("rollout") * STEPS + step).alias("order")


def last_judged(rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Drop judgements that a later one of the same name, rollout and step replaced.

    Args:
        rewards: Columns reward_id, rollout, name, value, time, step, emitted.
    """
    its_own = pl.when("emitted").then("reward_id")
    return (
        rewards.sort("time", "reward_id")
        .with_columns(its_own=its_own)
        .unique(["rollout", "name", "step", "its_own"], keep="last", maintain_order=True)
        .drop("its_own")
    )


def place(calls: pl.LazyFrame, rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Find the call at which each reward counts.

    Args:
        calls: Columns row, rollout and order of the calls that rewards can be given to, in order.
        rewards: As `last_judged` takes them; a step of null is the rollout as a whole.

    Returns:
        One row per reward, the rewards of a call in the order of time. Columns: row, value, and
        outcome, the part of the value that judges the whole rollout.
    """
    whole = pl.col("step").is_null()
    judged = last_judged(rewards).select(
        "rollout",
        "value",
        in_order(),
        outcome=pl.when(whole).then("value").otherwise(0.0),
    )
    places = calls.select("row", "order", before="rollout")
    first = pl.col("row").cast(pl.Int64).fill_null(-1) + 1  # that before is another rollout's
    return (
        judged.sort("order", maintain_order=True)
        .join_asof(places, on="order", check_sortedness=False)
        .with_columns(
            row=pl.when(pl.col("before") == pl.col("rollout")).then("row").otherwise(first)
        )
        .select("value", "outcome", "row")
    )


def outcomes(rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Add up the rewards of each rollout, in the order of their numbers.

    Returns:
        Columns rollout, outcome.
    """
    judged = last_judged(rewards).group_by("rollout", maintain_order=True)
    return judged.agg(outcome=pl.sum("value")).sort("rollout")


def shuffle(outcomes: pl.LazyFrame, seed: int) -> pl.LazyFrame:
    """Permute the outcomes of rollouts: a negative control in which nothing can be learned."""
    return outcomes.with_columns(pl.col("outcome").shuffle(seed))


def place_at_end(calls: pl.LazyFrame, outcomes: pl.LazyFrame) -> pl.LazyFrame:
    """Put the whole outcome of each rollout at its last call, in the form of `place`."""
    last = calls.group_by("rollout").agg(pl.max("row"))
    return outcomes.join(last, on="rollout").select("row", "outcome", value="outcome")
