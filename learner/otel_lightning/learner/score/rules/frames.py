"""The polars frames that rules get: rollouts or calls. Only the used columns are read."""

from collections.abc import Sequence

import polars as pl

from otel_lightning.collector.store import Sql, Store, statement
from otel_lightning.collector.store.sql_text import literal
from otel_lightning.learner import named_sql

ORDER = {
    "rollouts": "rollout_id",
    "calls": "rollout_id, step, span_id",
    "judgements": '"time", reward_id',
}


def scan(store: Store, name: str, rollout_ids: Sequence[str] | None = None) -> pl.LazyFrame:
    """Scan the statement `sql/<name>.sql` lazily: only the columns that a rule uses are read.

    Args:
        store: An open store; it must stay open until the frame is collected.
        name: `rollouts`, `calls` or `judgements`.
        rollout_ids: Ids of the rollouts to read, also those without a model call, if
            `lightning-learn run` attempted them. By default all rollouts with a model call.
    """
    chosen = "TRUE" if rollout_ids is None else f"rollout_id IN {literal(rollout_ids)}"
    sql = statement(__package__, name, among=Sql(chosen), silent=rollout_ids is not None)
    # A fixed order: a rule that returns a Series is matched to the rows by position, so the frame
    # must have the same order each time it is read.
    return named_sql.scan(store, sql, ORDER[name])
