"""From judgements, wherever and whenever they came, to one reward a model call.

The last judgement of a rollout as a whole is its terminal reward, at its last call. A judgement
that names an earlier call stays there. What was judged again counts once, as last judged.
"""

import polars as pl

from otel_lightning.learner.errors import DataError

CALL = ["rollout_id", "span_id"]


def select(rewards: pl.DataFrame, name: str | None) -> pl.DataFrame:
    """Keep the rewards of one name, or all.

    Args:
        rewards: Columns reward_id, rollout_id, span_id, name, value, time.
        name: The name to keep; None keeps all.

    Returns:
        The kept rows.

    Raises:
        DataError: If there are none, or a value is not a finite number.
    """
    if rewards.is_empty():
        raise DataError(
            "No rollout in the store has a reward, so there is nothing to learn from. Send "
            "'gen_ai.evaluation.result' events or POST to /v1/feedback, then run this again."
        )
    kept = rewards if name is None else rewards.filter(name=name)
    if kept.is_empty():
        known = ", ".join(sorted(set(rewards["name"])))
        raise DataError(f"No reward is named '{name}'. Known: {known}.")
    broken = kept.filter(~pl.col("value").is_finite())
    if broken.height:
        row = broken.row(0, named=True)
        raise DataError(
            f"Reward '{row['name']}' of rollout '{row['rollout_id']}' is {row['value']}. Send it "
            "again with a finite number, or choose another with --reward."
        )
    return kept


def last_calls(calls: pl.LazyFrame) -> pl.LazyFrame:
    """Find the last call of each rollout, of those with a completion if there is one.

    Returns:
        Columns rollout_id, last_span_id, last_step.
    """
    return (
        calls.sort("rollout_id", "has_completion", "step")
        .group_by("rollout_id")
        .agg(last_span_id=pl.last("span_id"), last_step=pl.last("step"))
    )


def place(calls: pl.LazyFrame, rewards: pl.LazyFrame) -> pl.LazyFrame:
    """Find the call at which each reward counts.

    Args:
        calls: Columns rollout_id, span_id, step, has_completion.
        rewards: Columns reward_id, rollout_id, span_id, name, value, time.

    Returns:
        Columns rollout_id, span_id, reward; calls without a reward have no row.
    """
    located = (
        rewards.join(last_calls(calls), on="rollout_id")
        .join(calls.select(*CALL, "step"), on=CALL, how="left")
        .sort("time", "reward_id")
    )
    names_earlier_call = (pl.col("step") < pl.col("last_step")).fill_null(value=False)
    final = (
        located.filter(~names_earlier_call)
        .unique("rollout_id", keep="last", maintain_order=True)
        .select("rollout_id", span_id="last_span_id", reward="value")
    )
    earlier = (
        located.filter(names_earlier_call)
        .unique([*CALL, "name"], keep="last", maintain_order=True)
        .select(*CALL, reward="value")
    )
    return pl.concat([final, earlier]).group_by(CALL).agg(pl.sum("reward"))


def outcomes(placed: pl.LazyFrame) -> pl.LazyFrame:
    """Add up the rewards of each rollout, in the order of their ids.

    Returns:
        Columns rollout_id, outcome.
    """
    return placed.group_by("rollout_id").agg(outcome=pl.sum("reward")).sort("rollout_id")


def shuffle(calls: pl.LazyFrame, placed: pl.LazyFrame, seed: int) -> pl.LazyFrame:
    """Give each rollout another's outcome: a negative control, from which nothing can be learned.

    Returns:
        As `place`, with the whole outcome at the last call.
    """
    return (
        outcomes(placed)
        .with_columns(reward=pl.col("outcome").shuffle(seed))
        .join(last_calls(calls), on="rollout_id")
        .select("rollout_id", span_id="last_span_id", reward="reward")
    )
