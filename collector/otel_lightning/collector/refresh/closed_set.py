"""A closed set of traces in the store: no trace outside it shares a key with one inside.

The set grows by steps: `frontier` holds the traces to read next, and the keys that were read from
them lead to the following ones. Its temporary tables belong to the caller's transaction.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from otel_lightning.collector.refresh import sorted_copy
from otel_lightning.collector.store import Sql, Store, statement

CROWD = 1_000
"""A key that more traces than this share ties none of them: some servers give every response the
same id."""
ROWS_AT_ONCE = 512
"""Rows that DuckDB returns at once; a row of a long conversation may have megabytes."""
LOGS_OF_FRONTIER = Sql("rowid IN (SELECT rowid FROM logs WHERE trace_id IN (FROM frontier))")


class ClosedSet:
    """The traces that one refresh derives together."""

    def __init__(self, store: Store, spans_at_once: int, waiting: Iterable[str]) -> None:
        """Pick the first stale traces.

        Args:
            store: A direct store, in a transaction.
            spans_at_once: About how many spans the picked traces may have.
            waiting: Ids of the rollouts that must not be derived yet.
        """
        self._store = store
        self._waiting = list(waiting)
        self._do("pick", waiting=self._waiting or [""], most=spans_at_once)
        self._table = sorted_copy.source(store, spans_at_once)

    def is_complete(self) -> bool:
        """Tell whether no trace is left to read."""
        return not len(self._store.query("SELECT 1 FROM frontier LIMIT 1"))

    def logs(self) -> pa.Table:
        """Return the log records of the traces to read next, and count these traces as read."""
        self._store.execute("INSERT INTO changed FROM frontier")
        return self._store.query(statement(__package__, "logs", which=LOGS_OF_FRONTIER))

    def spans(self) -> Iterator[pa.RecordBatch]:
        """Yield the spans of the traces to read next. Use the store again after the last one."""
        table, self._table = self._table, "spans"
        return self._store.stream(
            statement(__package__, "spans", table=Sql(table)), rows_at_once=ROWS_AT_ONCE
        )

    def follow(self, tied: pa.Table) -> None:
        """Write the keys of the stale traces, and go on to the traces that share one of them.

        Args:
            tied: The keys of the traces that were just read: `trace_id`, `key`, `seeks`.
        """
        self._do("no_ties")
        if len(tied):
            self._store.insert("tied", tied)
        self._do("follow", crowd=CROWD)

    def has_to_wait(self) -> bool:
        """Tell whether a trace belongs to a rollout that waits; such a trace waits with it."""
        if not self._waiting:
            return False
        return bool(
            len(self._store.query(statement(__package__, "put_off", waiting=self._waiting)))
        )

    def size(self) -> int:
        """Return the number of traces in the set."""
        return int(self._store.query("SELECT count(*) FROM changed").column(0)[0].as_py())

    def delete_rows(self, tables: Iterable[str]) -> None:
        """Delete the derived rows of the set from these tables."""
        for table in tables:
            self._store.execute(f"DELETE FROM {table} WHERE trace_id IN (FROM changed)")

    def settle(self) -> None:
        """Mark the traces of the set as derived, and drop the temporary tables."""
        self._do("settle")

    def _do(self, name: str, **values: str | int | Iterable[str]) -> None:
        self._store.execute(statement(__package__, name, **values))
