"""From judgements, wherever and whenever they came, to one reward a model call.

A judgement of a rollout as a whole is its outcome, at its last call; one that names a call, or was
sent on the way, stays there. What was judged again counts once, as last judged. What an unselected
or failed call earned moves to the last selected call before it, else to the first.
"""

import polars as pl

AFTER_ALL = 2**31 - 1
"""The step of a judgement of the whole rollout: behind every call."""


def last_judged(rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Drop judgements that a later one of the same name and the same thing replaced.

    Args:
        rewards: Columns reward_id, rollout_id, name, value, time, step, emitted.
    """
    its_own = pl.when("emitted").then("reward_id")
    return (
        rewards.sort("time", "reward_id")
        .with_columns(its_own=its_own)
        .unique(["rollout_id", "name", "step", "its_own"], keep="last", maintain_order=True)
        .drop("its_own")
    )


def place(calls: pl.LazyFrame, rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Find the call at which each reward counts.

    Args:
        calls: Columns row, rollout_id and step of the calls that rewards can be given to.
        rewards: As `last_judged` takes them; a step of null is the rollout as a whole.

    Returns:
        Columns row, value and outcome, the part of the value that judges the whole rollout; one
        row a reward, those of a call in the order of time.
    """
    whole = pl.col("step").is_null()
    judged = last_judged(rewards).select(
        "rollout_id",
        "value",
        outcome=pl.when(whole).then("value").otherwise(0.0),
        step=pl.col("step").fill_null(AFTER_ALL).cast(pl.Int32),
    )
    places = calls.select("rollout_id", "row", "step").sort("step")
    first = calls.group_by("rollout_id").agg(first_row=pl.min("row"))
    return (
        judged.sort("step", maintain_order=True)
        .join_asof(places, on="step", by="rollout_id", check_sortedness=False)
        .join(first, on="rollout_id", maintain_order="left")
        .select("value", "outcome", row=pl.coalesce("row", "first_row"))
    )


def outcomes(rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Add up the rewards of each rollout, in the order of their ids.

    Returns:
        Columns rollout_id, outcome.
    """
    judged = last_judged(rewards).group_by("rollout_id", maintain_order=True)
    return judged.agg(outcome=pl.sum("value")).sort("rollout_id")


def shuffle(outcomes: pl.LazyFrame, seed: int) -> pl.LazyFrame:
    """Give each rollout another's outcome: a negative control that teaches nothing."""
    return outcomes.with_columns(pl.col("outcome").shuffle(seed))


def place_at_end(calls: pl.LazyFrame, outcomes: pl.LazyFrame) -> pl.LazyFrame:
    """Put the whole outcome of each rollout at its last call, in the form of `place`."""
    last = calls.group_by("rollout_id").agg(pl.max("row"))
    return outcomes.join(last, on="rollout_id").select("row", "outcome", value="outcome")
