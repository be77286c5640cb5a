"""Result of a rule: its scores, and the rollouts it left out with the reason."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from otel_lightning.learner.score.rewards import HUGE

MOST_NAMED = 3
"""Number of excluded rollouts that a message names."""
SCORE_COLUMNS: dict[str, pl.DataType] = {
    "rollout_id": pl.String(),
    "span_id": pl.String(),
    "name": pl.String(),
    "value": pl.Float64(),
    "label": pl.String(),
    "explanation": pl.String(),
}
JUDGED = ["rollout_id", "span_id"]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rollouts (or calls, as `rollout/span`) without a score, and the reason."""

    reason: str
    ids: tuple[str, ...]

    def __str__(self) -> str:
        unnamed = len(self.ids) - MOST_NAMED
        named = ", ".join(self.ids[:MOST_NAMED]) + (f" and {unnamed} more" if unnamed > 0 else "")
        return f"{len(self.ids):,} left out: {self.reason} ({named})."


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of a rule, with the columns `SCORE_COLUMNS`, and the exclusions."""

    scores: pl.DataFrame
    left_out: tuple[Exclusion, ...] = ()


def checked(scored: Scored, calls: pl.DataFrame) -> Scored:
    """Keep usable scores of stored rollouts and calls, at most one per name.

    Args:
        scored: The scores of a rule, unchecked.
        calls: Columns rollout_id and span_id of every stored call.

    Returns:
        The scores that may be written; all others become exclusions.
    """
    scores = scored.scores.with_columns(reason=_reason(scored.scores, calls))
    # Equal scores given twice are one. Scores that are still duplicates contradict each other.
    kept = scores.filter(pl.col("reason").is_null()).drop("reason").unique(maintain_order=True)
    clashes = pl.struct(*JUDGED, "name").is_duplicated()
    contradictory = kept.filter(clashes).with_columns(reason=pl.lit("several different scores"))
    dropped = pl.concat([scores.filter(pl.col("reason").is_not_null()), contradictory])
    return Scored(kept.filter(~clashes), (*scored.left_out, *_exclusions(dropped)))


def _reason(scores: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    rollouts = calls.select("rollout_id", is_stored=True).unique()
    pairs = calls.select(*JUDGED, is_call=True).unique()
    return (
        scores.join(rollouts, on="rollout_id", how="left", maintain_order="left")
        .join(pairs, on=JUDGED, how="left", maintain_order="left")
        .select(
            pl.when(pl.col("is_stored").is_null())
            .then(pl.lit("no such rollout is stored"))
            .when(pl.col("span_id").is_not_null() & pl.col("is_call").is_null())
            .then(pl.lit("not a call of its rollout"))
            .when(pl.col("value").is_null())
            .then(pl.lit("no score"))
            .when(~pl.col("value").is_finite())
            .then(pl.format("the score is {}", "value"))
            .when(pl.col("value").abs() > HUGE)
            .then(pl.lit(f"the score is beyond {HUGE:g}, which cannot be computed with"))
        )
        .to_series()
    )


def _exclusions(dropped: pl.DataFrame) -> Iterator[Exclusion]:
    rollout = pl.col("rollout_id").fill_null("NULL")
    ids = pl.concat_str(rollout, "span_id", separator="/", ignore_nulls=True)
    named = dropped.select("reason", ids=ids).unique(maintain_order=True)
    for (reason,), group in named.group_by(["reason"], maintain_order=True):
        yield Exclusion(str(reason), tuple(group["ids"]))
