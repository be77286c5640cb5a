"""Derive stale log records that have no trace.

This imports what derives spans only if a record needs it: see
`derive/batches/logs_without_trace.py`.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from otel_lightning.collector.derive.batches import from_arrow, logs_without_trace, to_arrow
from otel_lightning.collector.refresh.rollouts.rollout_rows import NewRows
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.refresh.stored_records import read_logs
from otel_lightning.collector.store import Sql, Store, statement
from otel_lightning.collector.store.sql_text import literal

LOGS_AT_ONCE = 5_000


def derive_without_spans(store: Store) -> bool:
    """Derive the stale log records without a trace; return whether nothing else is stale.

    Args:
        store: A direct store.
    """
    while refresh_logs_without_trace(store):
        pass
    return not store.rows("SELECT 1 AS one FROM stale LIMIT 1")


def refresh_logs_without_trace(store: Store) -> int:
    """Derive some of the stale log records without a trace; return their number."""
    log_ids = store.column(statement(__package__, "stale_logs", most=LOGS_AT_ONCE))
    if log_ids:
        _derive(store, log_ids)
    return len(log_ids)


def _derive(store: Store, log_ids: Sequence[str]) -> None:
    ids = Sql(f"log_id IN {literal(log_ids)}")
    rows = dict(_tables(store, read_logs(store, ids)))
    with store.transaction():
        if (rewards := rows.get("reward_events")) is not None:
            reward_ids = literal(rewards["reward_id"].to_pylist())
            # The same reward may have come before: feedback with one id is one reward.
            store.execute(f"DELETE FROM reward_events WHERE reward_id IN {reward_ids}")
        new = NewRows()
        for table, some in rows.items():
            store.insert(table, some)
            new.add(table, some)
        new.keep_rollouts(store)
        store.execute(f"DELETE FROM stale WHERE kind = 'log' AND id IN {literal(log_ids)}")


def _tables(store: Store, logs: pa.Table) -> Iterable[tuple[str, pa.Table]]:
    read = list(from_arrow.logs(logs))
    if logs_without_trace.state_rollouts(read):
        return to_arrow.tables(logs_without_trace.derived(read), schemas(store))
    from otel_lightning.collector.derive.batches.batch import Batch

    batch = Batch()
    batch.read([], logs)
    return batch.tables(schemas(store))
