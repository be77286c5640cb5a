"""A closed set of traces in the store: no trace outside it shares a key with one inside.

The set grows by steps: the frontier holds the traces to read next, and the keys that were read from
them lead to the following ones. The temporary table `chosen` holds the traces that a statement is
about; it belongs to the caller's transaction.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from otel_lightning.collector.derive.batches.tied_keys import Keys, TiedKeys
from otel_lightning.collector.refresh.closed_set import sorted_copy
from otel_lightning.collector.refresh.stale import NONE
from otel_lightning.collector.refresh.stored_records import read_logs, stream_spans
from otel_lightning.collector.refresh.time_ranges.recent_traces import (
    EVERYWHERE,
    MOST_TRACES,
    NOWHERE,
    recent_traces,
)
from otel_lightning.collector.store import Sql, Store, StoreError, statement
from otel_lightning.collector.store.sql_text import Value

CROWD = 1_000
"""A key that more traces than this share ties none of them: some servers give every response the
same id."""
CHAINED = 2
"""From this step on, all traces of the rollouts that keys lead to are read at once. If each turn of
a conversation names the turn before it, its keys lead from trace to trace, one with each step."""
OF_CHOSEN = Sql("trace_id IN (FROM chosen)")
LOGS_OF_CHOSEN = f"{{0}} AND rowid IN (SELECT rowid FROM logs WHERE {{0}} AND {OF_CHOSEN})"
KEYS = pa.schema([("trace_id", pa.string()), ("key", pa.uint64())])


def size_new(store: Store, held: Sql | Sequence[str] = NONE) -> None:
    """Count the spans of stale traces that are not counted yet, and date these traces.

    Args:
        store: A direct store, in a transaction.
        held: Ids of traces and rollouts to leave out, or a subquery for them.
    """
    unsized = statement(__package__, "unsized", held=held, most=MOST_TRACES + 1)
    if traces := store.column(unsized):
        sorted_copy.forget_outdated(store)
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
        self._recent = recent_traces(store)
        self._do("pick", held=held or self._waiting or NONE, most=spans_at_once)
        self._frontier = self._chosen = self._store.column("FROM chosen")
        self._stale = set(self._frontier)
        """The traces of the frontier that are stale."""
        self._read: list[str] = []
        """The traces of the set that were read so far."""
        self._sought_keys, self._matches = KEYS.empty_table(), KEYS.empty_table()
        """The keys that the traces that were read last look for, and the stored ones among them."""
        self._steps = 0
        """Number of steps in which keys were followed."""
        self._received = self._recent.received_since(self._frontier)
        self._counted = 0
        """Number of spans that the traces to read next had when they were counted, at least."""
        self._table = sorted_copy.source(store, spans_at_once, self._received)

    def suspend(self) -> None:
        """Keep the set while the transaction ends and others use the temporary table."""
        self._chosen = []

    def frontier(self) -> list[str]:
        """Return the ids of the traces to read next."""
        return self._frontier

    def names(self) -> list[str]:
        """Return the rollouts of the traces to read next, or ids of those that name none."""
        self._choose(self._frontier)
        return self._store.column(
            "SELECT DISTINCT coalesce(near, id) FROM stale WHERE id IN (FROM chosen)"
        )

    def mark_read(self) -> None:
        """Mark the `stale` rows of the frontier's traces as read: `settle` deletes only those."""
        self._choose(self._frontier)
        self._store.execute(
            "UPDATE stale SET spans = 1"
            " WHERE kind = 'trace' AND spans IS NULL AND id IN (FROM chosen)"
        )

    def is_complete(self) -> bool:
        """Return whether no trace is left to read."""
        return not self._frontier

    def settled(self) -> list[str]:
        """Return the traces to read next whose spans were all derived before."""
        return [one for one in self._frontier if one not in self._stale]

    def leave_out(self, trace_ids: Sequence[str]) -> None:
        """Count traces as read, because the caller has parsed them before."""
        left_out = set(trace_ids)
        self._read += trace_ids
        self._frontier = [one for one in self._frontier if one not in left_out]

    def choose_frontier(self) -> None:
        """Let `spans.sql` be about the traces to read next."""
        self._choose(self._frontier)

    def logs(self, but: Iterable[str] = ()) -> pa.Table:
        """Return the log records of the traces to read next, and count these traces as read.

        Args:
            but: Traces of which `logs` and `spans` return nothing.
        """
        self._received = self._recent.received_since(self._frontier)
        self._read += self._frontier
        left_out = set(but)
        self._choose([one for one in self._frontier if one not in left_out])
        counted = (
            "SELECT coalesce(sum(spans), 0) FROM stale WHERE kind = 'trace' AND id IN (FROM chosen)"
        )
        self._counted = int(self._store.column(counted)[0])
        return read_logs(self._store, Sql(LOGS_OF_CHOSEN.format(self._received)))

    @property
    def has_copy(self) -> bool:
        """Whether `spans` reads a sorted copy, which only this connection sees."""
        return self._table != "spans"

    def spans(self) -> Iterator[pa.RecordBatch]:
        """Yield the spans of the traces whose log records `logs` returned last.

        Use the store again after the last one.
        """
        # The copy has the stale traces only; those that keys lead to are read from `spans`.
        table, self._table = self._table, "spans"
        received = self._received if table == "spans" else EVERYWHERE
        return _read(self._store, self._counted, received, table)

    def spans_apart(self) -> Iterator[pa.RecordBatch]:
        """Yield what `spans` does, by a connection of its own, so perhaps in another thread.

        Do not call it if `has_copy`.
        """
        return _read_apart(self._store.cursor(), self._chosen, self._counted, self._received)

    def follow(self, keys: TiedKeys) -> None:
        """Write the keys of the stale traces, and go on to the traces that share one of them.

        Args:
            keys: The keys of the traces that were just read.
        """
        # Before the new keys are written: a key that only these traces have leads nowhere.
        self._sought_keys, self._matches = (
            keys.sought_keys_by_trace(),
            self._search(keys.sought_keys()),
        )
        written = self._write_keys(keys)
        self._frontier = self._traces_to_read(keys, written) if len(self._matches) else []
        self._steps += 1
        if self._frontier and self._steps >= CHAINED:
            self._frontier = self._with_rollouts(self._frontier)
        self._stale = set()
        if self._frontier:
            self._choose(self._frontier)
            select = "SELECT DISTINCT id FROM stale WHERE kind = 'trace' AND id IN (FROM chosen)"
            self._stale.update(self._store.column(select))

    def _search(self, keys: Keys) -> pa.Table:
        """Return the stored keys that are among some keys, with their traces."""
        searched = pa.table({"key": keys})
        parts = [
            self._store.pick(searched, statement(__package__, "meet", places=places))
            for places in self._recent.keys.conditions(self._store, keys)
        ]
        return pa.concat_tables(parts) if parts else KEYS.empty_table()

    def _write_keys(self, keys: TiedKeys) -> pa.Table:
        """Replace the keys of the stale traces, and return the new ones.

        Only stale traces may have new keys; the keys of the others are in the table already.
        """
        stale = [one for one in self._frontier if one in self._stale]
        if not stale:
            return KEYS.empty_table()
        now_ns = time.time_ns()
        self._delete(stale, {"trace_keys": self._recent.keys_since(stale)})
        own = keys.own_of(self._stale)
        if len(own):
            times = pa.repeat(pa.scalar(now_ns, pa.timestamp("ns")), len(own))
            self._store.insert("trace_keys", own.append_column("added_at", times))
        self._recent.wrote_keys(stale, now_ns)
        self._recent.keys.wrote(self._store, np.unique(own["key"].to_numpy()), now_ns)
        return own

    def _traces_to_read(self, keys: TiedKeys, written: pa.Table) -> list[str]:
        """Return the traces that share a key with those that were just read.

        Some servers give every response the same id, so a key that more than `CROWD` traces share
        ties none of them.
        """
        matches = self._matches["key"].to_numpy()
        # The former keys of these traces are deleted.
        is_former = pc.is_in(
            self._matches["trace_id"], pa.array(self._stale, pa.string())
        ).to_numpy()
        shared, traces = np.unique(
            np.concatenate([matches[~is_former], written["key"].to_numpy()]), return_counts=True
        )
        ties = np.isin(matches, shared[traces <= CROWD]) | np.isin(matches, keys.ties_all())
        trace_ids = (
            self._matches["trace_id"].filter(pa.array(ties & ~is_former)).unique().to_pylist()
        )
        read = set(self._read)
        return [one for one in trace_ids if one not in read]

    def _with_rollouts(self, trace_ids: list[str]) -> list[str]:
        """Add the traces of the same rollouts, which were derived together, to traces to read."""
        self._choose(trace_ids)
        since = self._recent.rows_since(trace_ids)["llm_calls"]
        together = self._store.column(statement(__package__, "same_rollouts", since=since))
        read = {*self._read, *trace_ids}
        return [*trace_ids, *(one for one in together if one not in read)]

    def has_to_wait(self) -> bool:
        """Return whether a trace belongs to a rollout that waits; such a trace waits with it."""
        if not self._waiting or not self._frontier:
            return False
        self._choose(self._frontier)
        # A rollout that waits was derived a short time ago, so its traces are remembered.
        remembered = self._recent.remembered(self._frontier)
        since = self._recent.rows_since(remembered)["llm_calls"]
        waiting = statement(__package__, "waiting_rollouts", waiting=self._waiting, since=since)
        rollouts = self._store.rows(waiting)
        put_off = self._put_off({one["trace_id"]: one["rollout_id"] for one in rollouts})
        if not put_off:
            return False
        self._store.execute("CREATE OR REPLACE TEMP TABLE waits (trace_id VARCHAR, near VARCHAR)")
        self._store.insert("waits", pa.table({"trace_id": [*put_off], "near": [*put_off.values()]}))
        return bool(self._store.column(statement(__package__, "put_off", waiting=self._waiting)))

    def _put_off(self, waiting: Mapping[str, str]) -> dict[str, str]:
        """Return the traces read last that share a key with a trace of a rollout that waits.

        Args:
            waiting: The rollouts that wait, by traces of the frontier.
        """
        by_key: dict[int, str] = {}
        for trace_id, key in _pairs(self._matches) if waiting else ():
            if rollout_id := waiting.get(trace_id):
                by_key[key] = min(rollout_id, by_key.get(key, rollout_id))
        put_off: dict[str, str] = {}
        for trace_id, key in _pairs(self._sought_keys) if by_key else ():
            if rollout_id := by_key.get(key):
                put_off[trace_id] = min(rollout_id, put_off.get(trace_id, rollout_id))
        return put_off

    def size(self) -> int:
        """Return the number of traces in the set."""
        return len(self._read)

    def trace_ids(self) -> list[str]:
        """Return the ids of the traces of the set."""
        return list(self._read)

    def delete_rows(self, tables: Iterable[str], but: Iterable[str] = ()) -> None:
        """Delete the derived rows of the set from these tables, except for some traces."""
        left_out = set(but)
        traces = [one for one in self._read if one not in left_out]
        since = self._recent.rows_since(traces)
        self._delete(traces, {table: since[table] for table in tables})

    def delete_tasks(self) -> None:
        """Delete the tasks that traces of the set state: their rollouts may get other ids."""
        if self._recent.rows_since(self._read)["rollout_tasks"] != NOWHERE:
            self._choose(self._read)
            self._store.execute("DELETE FROM rollout_tasks WHERE stated_by IN (FROM chosen)")

    def keep_rows(self, trace_ids: Iterable[str]) -> None:
        """Let these traces keep their derived rows, because they would be written again."""
        # They have no new spans, so they are not stale.
        unchanged = set(trace_ids)
        self._read = [one for one in self._read if one not in unchanged]

    def settle(self) -> None:
        """Mark the traces of the set as derived, and drop the temporary table."""
        self._choose(self._read)
        self._do("settle")
        self._chosen = []

    def _delete(self, trace_ids: list[str], since: Mapping[str, Sql]) -> None:
        """Delete the rows of traces from tables, in each those that meet a condition."""
        conditions = {
            table: condition for table, condition in since.items() if condition != NOWHERE
        }
        if EVERYWHERE in conditions.values():
            # Asking which tables have rows at all is cheaper than to search one in vain.
            queries = " UNION ALL ".join(
                f"(SELECT '{table}' FROM {table} LIMIT 1)" for table in conditions
            )
            conditions = {table: conditions[table] for table in self._store.column(queries)}
        if conditions:
            self._choose(trace_ids)
            delete = "DELETE FROM {} WHERE {} AND trace_id IN (FROM chosen)"
            self._store.execute("; ".join(delete.format(*one) for one in conditions.items()))

    def _choose(self, trace_ids: list[str]) -> None:
        """Let `chosen` hold these traces."""
        if trace_ids != self._chosen:
            _choose(self._store, trace_ids)
            self._chosen = list(trace_ids)

    def _do(self, name: str, **values: Value) -> None:
        self._store.execute(statement(__package__, name, **values))


def _pairs(rows: pa.Table) -> Iterator[tuple[str, int]]:
    """Yield the trace id and the key of each row of `KEYS`."""
    return zip(rows["trace_id"].to_pylist(), rows["key"].to_pylist(), strict=True)


def _choose(store: Store, trace_ids: Sequence[str]) -> None:
    """Let the table `chosen` of a connection hold these traces."""
    store.execute("CREATE OR REPLACE TEMP TABLE chosen (trace_id VARCHAR)")
    store.insert("chosen", pa.table({"trace_id": pa.array(trace_ids, pa.string())}))


def _read_apart(
    store: Store, trace_ids: list[str], counted: int, received: Sql
) -> Iterator[pa.RecordBatch]:
    """Yield the spans of traces as `_read` does, and close the connection."""
    with store:
        _choose(store, trace_ids)
        yield from _read(store, counted, received)


def _read(
    store: Store, counted: int, received: Sql, table: str = "spans"
) -> Iterator[pa.RecordBatch]:
    """Yield the spans of the traces of `chosen` that meet a condition.

    A trace whose spans were not found would get no rows, and would not be read again.

    Raises:
        StoreError: If they are fewer than were counted, and the store has more. An error drops what
            is remembered of times, so the next attempt searches the whole table.
    """
    read = 0
    for batch in stream_spans(store, OF_CHOSEN, received, table):
        read += len(batch)
        yield batch
    if read < counted:
        stored = store.column(f"SELECT count(*) FROM spans WHERE {OF_CHOSEN}")[0]
        if int(stored) > read:
            raise StoreError(
                f"Only {read:,} of {stored:,} spans of the traces to derive were found. They are "
                "searched for again in the whole table."
            )
