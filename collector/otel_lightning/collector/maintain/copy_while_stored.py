"""Copy a served store to a new file while its loader goes on to store and derive.

Most rows are copied first. The loader notes the traces whose rows it changes meanwhile: their rows
are copied again, twice or more, each time fewer. Only the last of these rounds, with the small
tables that change anywhere, runs between two batches of the loader.

No round uses row ids: a checkpoint of the loader may change them, also during a statement.
"""

from collections.abc import Collection

import pyarrow as pa

from otel_lightning.collector.derive.tables import TABLES as DERIVED_TABLES
from otel_lightning.collector.maintain.copy_store import columns_of, copy_table
from otel_lightning.collector.maintain.erase import make_tables, make_views, tables_of
from otel_lightning.collector.store import SKIPPED_TO, Sql, Store, StoreError, statement
from otel_lightning.collector.store.sql_text import quote_name
from otel_lightning.collector.store.tables import ROLLOUT_ROWS

CHANGED_ANYWHERE = (
    *("reward_events", ROLLOUT_ROWS, "rollout_tasks", "rejected", "stale"),
    *("spool_position", "spool_identity"),
)
"""Tables that the loader changes without noting a trace: they have a narrow row for a rollout at
most."""
OF_TRACES = tuple(
    table
    for table in ("spans", "logs", *DERIVED_TABLES, "trace_keys")
    if table not in CHANGED_ANYWHERE
)
"""The other tables that the loader changes: it notes the trace of each row."""
FEW_TRACES = SKIPPED_TO
"""Number of changed traces that are copied at once: DuckDB then reads only blocks that have one."""


def copy_most(store: Store, source: str) -> None:
    """Copy all tables but those that change anywhere.

    Args:
        store: A new store.
        source: Name of the served database.
    """
    make_tables(store, source)
    for table in tables_of(store):
        if table not in CHANGED_ANYWHERE:
            _copy(store, table, source, Sql("TRUE"))


def copy_changed(store: Store, source: str, trace_ids: Collection[str]) -> None:
    """Copy the rows of some traces again, in the place of those that were copied before.

    Args:
        store: The new store.
        source: Name of the served database.
        trace_ids: The traces.
    """
    ids = pa.table({"trace_id": pa.array(sorted(trace_ids), pa.string())})
    for first in range(0, len(ids), FEW_TRACES):
        store.execute("CREATE OR REPLACE TEMP TABLE changed_traces (trace_id VARCHAR)")
        store.insert("changed_traces", ids.slice(first, FEW_TRACES))
        _copy_again(store, source, Sql("trace_id IN (FROM changed_traces)"))


def copy_rest(store: Store, source: str) -> None:
    """Copy what `copy_most` left out, while nothing else writes; make the views of users.

    Raises:
        StoreError: If a table has other rows than the served one.
    """
    _copy_again(store, source, Sql("trace_id IS NULL"))
    for table in CHANGED_ANYWHERE:
        copy_table(store, table, source)
    for table in tables_of(store):
        copied, stored = store.count(quote_name(table)), store.count(_of(source, table))
        if copied != stored:
            raise StoreError(f"{copied:,} rows of '{table}' were copied, and it has {stored:,}.")
    make_views(store, source)


def _copy_again(store: Store, source: str, condition: Sql) -> None:
    for table in OF_TRACES:
        store.execute(f"DELETE FROM {table} WHERE {condition}")
        _copy(store, table, source, condition)


def _copy(store: Store, table: str, source: str, condition: Sql) -> None:
    values = {
        "table": Sql(quote_name(table)),
        "columns": Sql(", ".join(columns_of(store, table, source))),
        "old": Sql(_of(source, table)),
        "condition": condition,
    }
    store.execute(statement(__package__, "copied_all", **values))


def _of(source: str, table: str) -> str:
    return f"{quote_name(source)}.main.{quote_name(table)}"
