"""Read stored spans and log records, with the columns that `derive` reads."""

from collections.abc import Iterator

import pyarrow as pa

from otel_lightning.collector.store import Sql, Store, statement

ROWS_AT_ONCE = 512
"""Rows that DuckDB returns at once; a row of a long conversation may have megabytes."""


def stream_spans(
    store: Store, condition: Sql, received: Sql, table: str = "spans"
) -> Iterator[pa.RecordBatch]:
    """Yield the spans that meet two conditions; use the store again after the last one.

    Args:
        store: A direct store.
        condition: The spans to read.
        received: A condition on `received_at` that all of them meet; DuckDB skips other blocks.
        table: The table `spans`, or a copy of some of its rows.
    """
    conditions = {"table": Sql(table), "received": received, "condition": condition}
    return store.stream(statement(__package__, "spans", **conditions), rows_at_once=ROWS_AT_ONCE)


def read_logs(store: Store, condition: Sql) -> pa.Table:
    """Return the log records that meet a condition, in the order in which they were received."""
    return store.query(statement(__package__, "logs", condition=condition))
