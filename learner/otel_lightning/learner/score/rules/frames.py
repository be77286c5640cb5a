"""The polars frames that rules get: rollouts or calls, of which only used columns are read."""

import polars as pl

from otel_lightning.collector.store import Store, statement
from otel_lightning.learner import named_sql

ORDER = {
    "rollouts": "rollout_id",
    "calls": "rollout_id, step, span_id",
    "judgements": '"time", reward_id',
}


def scan(store: Store, name: str) -> pl.LazyFrame:
    """Scan the statement `sql/<name>.sql` lazily: only the columns that a rule uses are read.

    Args:
        store: An open store; it must stay open until the frame is collected.
        name: `rollouts`, `calls` or `judgements`.
    """
    return named_sql.scan(store, statement(__package__, name), ORDER[name])
