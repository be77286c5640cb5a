"""The table `scores`: rewards that rules and judges gave to stored rollouts and calls."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

import polars as pl

from otel_lightning.collector.store import Store, quote_literal
from otel_lightning.collector.store.sql_text import literal
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import arrow

JUDGED = ("rollout_id", "trace_id", "span_id", "response_id")
IDENTITY = ("source", "name", *JUDGED)
SAME = ["reward_id", "value", "label", "explanation"]
COLUMNS: dict[str, pl.DataType] = dict.fromkeys(
    ("reward_id", *JUDGED, "task_id", "name"), pl.String()
)
COLUMNS |= {"value": pl.Float64(), "label": pl.String(), "explanation": pl.String()}
COLUMNS |= {"source": pl.String(), "time": pl.Datetime("ns")}


def replace_scores(
    store: Store, source_prefix: str, scores: pl.DataFrame, rollout_ids: Sequence[str] | None = None
) -> None:
    """Replace the scores that one rule or judge gave before.

    The replacement is one transaction, also through a running ingester. The id of a score is a
    hash of its source, its name and the ids of what it judges. An unchanged score keeps its time,
    so that transitions of unchanged tasks are not rebuilt.

    Args:
        store: An open store.
        source_prefix: `rule:<name>` or `judge:<name>`. All former scores with this prefix are
            deleted, whatever their fingerprint.
        scores: Columns name, value and source (`<source_prefix>@<fingerprint>`); optional
            columns: rollout_id, trace_id, span_id, response_id, label, explanation.
        rollout_ids: Replace only the scores of these rollouts; by default, of all.

    Raises:
        DataError: If two scores have the same source, name and judged ids, or a source lacks the
            prefix.
        StoreError: If the store cannot be written.
    """
    rows = with_ids(scores)
    foreign = rows.filter(~pl.col("source").str.starts_with(f"{source_prefix}@"))
    if foreign.height:
        raise DataError(
            f"A score has source '{foreign['source'][0]}', which is not of '{source_prefix}'. "
            f"Write sources as '{source_prefix}@<fingerprint>'."
        )
    its_own = f"starts_with(source, {quote_literal(source_prefix + '@')})"
    if rollout_ids is not None:
        its_own += f" AND rollout_id IN {literal(rollout_ids)}"
    stored = store.query(f'SELECT {", ".join(SAME)}, "time" AS former FROM scores WHERE {its_own}')
    store.replace("scores", arrow(_keep_times(rows, pl.DataFrame(stored))), its_own)


def with_ids(scores: pl.DataFrame) -> pl.DataFrame:
    """Add to scores the missing columns of the table, an id and the current time.

    Raises:
        DataError: If two scores would have the same id.
    """
    rows = scores.select(
        (pl.col(name) if name in scores.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in COLUMNS.items()
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = rows.with_columns(reward_ids(rows), pl.lit(now, pl.Datetime("ns")).alias("time"))
    twice = rows.filter(pl.col("reward_id").is_duplicated())
    if twice.height:
        first = twice.row(0, named=True)
        judged = next((f"{key} '{first[key]}'" for key in JUDGED if first[key]), "nothing")
        raise DataError(
            f"'{first['source']}' gives two scores named '{first['name']}' to {judged}. "
            "Give one, or name them differently."
        )
    return rows


def reward_ids(scores: pl.DataFrame) -> pl.Series:
    """Hash the identity of each score: its source, its name and the ids of what it judges."""
    parts = scores.select(pl.col(IDENTITY).fill_null(""))
    # \x1f, the unit separator, does not occur in ids: so no two rows give one text.
    ids = [sha256("\x1f".join(row).encode()).hexdigest()[:32] for row in parts.rows()]
    return pl.Series("reward_id", ids, pl.String())


def _keep_times(rows: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    return (
        # Equal in everything but the time: then the score is the same, and keeps its former time.
        rows.join(stored, on=SAME, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pl.coalesce("former", "time").alias("time"))
        .drop("former")
    )
