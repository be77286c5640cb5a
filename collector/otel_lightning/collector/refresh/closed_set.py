"""A closed set of traces in the store: no trace outside it shares a key with one inside.

The set grows by steps: `frontier` holds the traces to read next, and the keys that were read from
them lead to the following ones. Its temporary tables belong to the caller's transaction.
"""

import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from otel_lightning.collector.refresh import sorted_copy
from otel_lightning.collector.refresh.key_places import Keys, numbers
from otel_lightning.collector.refresh.recent_traces import (
    EVERYWHERE,
    MOST_TRACES,
    NOWHERE,
    recent_traces,
)
from otel_lightning.collector.store import Sql, Store, quote_literal, statement
from otel_lightning.collector.store.sql_text import Value

CROWD = 1_000
"""A key that more traces than this share ties none of them: some servers give every response the
same id."""
ROWS_AT_ONCE = 512
"""Rows that DuckDB returns at once; a row of a long conversation may have megabytes."""
LOGS_OF_FRONTIER = "rowid IN (SELECT rowid FROM logs WHERE {} AND trace_id IN (FROM frontier))"


def size_new(store: Store, held: Sql | Sequence[str]) -> None:
    """Count the spans of stale traces that are not counted yet, and date these traces.

    Args:
        store: A direct store, in a transaction.
        held: Ids of traces and rollouts to leave out, or a subquery for them.
    """
    unsized = statement(__package__, "unsized", held=held, most=MOST_TRACES + 1)
    traces: list[str] = store.query(unsized).column(0).to_pylist()
    if traces:
        sorted_copy.forget(store, is_used_up=False)  # it was made before these spans came
        received = recent_traces(store).received_since(traces)
        store.execute(statement(__package__, "size", held=held, received=received))


class ClosedSet:
    """The traces that one refresh derives together."""

    def __init__(
        self, store: Store, spans_at_once: int, waiting: Iterable[str], held: Sql | None = None
    ) -> None:
        """Pick the first stale traces.

        Args:
            store: A direct store, in a transaction.
            spans_at_once: About how many spans the picked traces may have.
            waiting: Ids of the rollouts that must not be derived yet.
            held: A subquery for the ids of traces and rollouts not to pick; `waiting` by default.
        """
        self._store = store
        self._waiting = list(waiting)
        self._kept: dict[str, pa.Table] = {}
        self._but = ""
        self._recent = recent_traces(store)
        self._do("pick", held=held or self._waiting or [""], most=spans_at_once)
        self._received = self._recent.received_since(self.frontier())
        self._table = sorted_copy.source(store, spans_at_once, self._received)

    def suspend(self) -> None:
        """Keep the set while the transaction ends and others use the temporary tables."""
        self._kept = {name: self._store.query(f"FROM {name}") for name in ("changed", "frontier")}

    def resume(self) -> None:
        """Go on in another transaction, with `follow` or with replacing the rows."""
        for name, rows in self._kept.items():
            self._store.execute(f"CREATE OR REPLACE TEMP TABLE {name} (trace_id VARCHAR)")
            self._store.insert(name, rows)

    def frontier(self) -> list[str]:
        """Return the ids of the traces to read next."""
        found: list[str] = self._store.query("FROM frontier").column(0).to_pylist()
        return found

    def names(self) -> list[str]:
        """Return the rollouts of the traces to read next, or ids of those that name none."""
        select = "SELECT DISTINCT coalesce(near, id) FROM stale WHERE id IN (FROM frontier)"
        found: list[str] = self._store.query(select).column(0).to_pylist()
        return found

    def mark_read(self) -> None:
        """Mark the `stale` rows of the frontier's traces as read: `settle` deletes only those."""
        self._store.execute(
            "UPDATE stale SET spans = 1"
            " WHERE kind = 'trace' AND spans IS NULL AND id IN (FROM frontier)"
        )

    def is_complete(self) -> bool:
        """Tell whether no trace is left to read."""
        return not len(self._store.query("SELECT 1 FROM frontier LIMIT 1"))

    def settled(self) -> list[str]:
        """Return the traces to read next whose spans were all derived before."""
        found = self._store.query(statement(__package__, "settled"))
        traces: list[str] = found.column(0).to_pylist()
        return traces

    def leave_out(self, trace_ids: Sequence[str]) -> None:
        """Count traces as read, because the caller has parsed them before."""
        self._do("no_recalled")
        self._store.insert("recalled", pa.table({"trace_id": trace_ids}))
        self._do("leave_out")

    def logs(self, but: Iterable[str] = ()) -> pa.Table:
        """Return the log records of the traces to read next, and count these traces as read.

        Args:
            but: Traces of which `logs` and `spans` return nothing.
        """
        self._received = self._recent.received_since(self.frontier())
        self._but = "".join(f" AND trace_id <> {quote_literal(one)}" for one in but)
        self._store.execute("INSERT INTO changed FROM frontier")
        which = Sql(LOGS_OF_FRONTIER.format(self._received + self._but))
        return self._store.query(statement(__package__, "logs", which=which))

    def spans(self) -> Iterator[pa.RecordBatch]:
        """Yield the spans of the traces whose log records `logs` returned last.

        Use the store again after the last one.
        """
        # The copy has the stale traces only; those that keys lead to are read from `spans`.
        table, self._table = self._table, "spans"
        received = Sql((self._received if table == "spans" else EVERYWHERE) + self._but)
        select = statement(__package__, "spans", table=Sql(table), received=received)
        return self._store.stream(select, rows_at_once=ROWS_AT_ONCE)

    def follow(self, tied: pa.Table) -> None:
        """Write the keys of the stale traces, and go on to the traces that share one of them.

        Args:
            tied: The keys of the traces that were just read: `trace_id`, `key`, `seeks`.
        """
        self._do("no_ties")
        if len(tied):
            self._store.insert("tied", tied)
        self._do("sought")
        now_ns = time.time_ns()
        # Asked before the new keys are written: a key that only these traces have leads nowhere.
        found = self._recent.keys.conditions(self._store, self._keys("key", "TRUE"), now_ns)
        self._keep_keys(now_ns)
        self._do("no_met")
        for places in found:
            self._do("meet", places=places)
        self._do("follow", crowd=CROWD)

    def _keep_keys(self, now_ns: int) -> None:
        self._do("read_again")
        again: list[str] = self._store.query("FROM read_again").column(0).to_pylist()
        if again:
            self._do("keep_keys", added=self._recent.keys_since(again), now_ns=now_ns)
            self._recent.wrote_keys(again, now_ns)
            written = self._keys("own", "trace_id IN (FROM read_again)")
            self._recent.keys.wrote(self._store, written, now_ns)

    def _keys(self, column: str, which: str) -> Keys:
        select = f"SELECT DISTINCT {column} FROM sought WHERE {which}"
        return numbers(self._store.query(select).column(0))

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

    def trace_ids(self) -> list[str]:
        """Return the ids of the traces of the set."""
        found: list[str] = self._store.query("FROM changed").column(0).to_pylist()
        return found

    def delete_rows(self, tables: Iterable[str], but: Iterable[str] = ()) -> None:
        """Delete the derived rows of the set from these tables, except for some traces."""
        kept = "".join(f" AND trace_id <> {quote_literal(one)}" for one in but)
        traces = [one for one in self.trace_ids() if one not in set(but)]
        since = self._recent.rows_since(traces)
        for table in tables:
            if (where := since[table]) != NOWHERE:
                self._store.execute(
                    f"DELETE FROM {table} WHERE {where}{kept} AND trace_id IN (FROM changed)"
                )

    def keep_rows(self, trace_ids: Iterable[str]) -> None:
        """Let these traces keep their derived rows, because they would be written again."""
        if traces := list(trace_ids):
            self._do("no_recalled")
            self._store.insert("recalled", pa.table({"trace_id": traces}))
            self._do("keep_rows")

    def settle(self) -> None:
        """Mark the traces of the set as derived, and drop the temporary tables."""
        self._do("settle")

    def _do(self, name: str, **values: Value) -> None:
        self._store.execute(statement(__package__, name, **values))
