"""Keep the derived tables current: pick stale traces, derive them, replace their rows.

A new span can change more than its own trace: the other turns of its conversation, the calls of a
message history that it continues. `trace_keys` holds the keys that tie traces together. Following
the keys gives a closed set of traces. Its rows are derived again and replace the old ones in one
transaction, so the tables do not depend on the order in which the spans arrived.
"""

import gc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa

from otel_lightning.collector.derive.batches.batch import Batch
from otel_lightning.collector.derive.batches.parsed_traces import ParsedTraces
from otel_lightning.collector.derive.batches.portions import Portioning
from otel_lightning.collector.derive.batches.to_arrow import PER_TRACE, TABLES
from otel_lightning.collector.refresh.backoff import Backoff
from otel_lightning.collector.refresh.closed_set import late_spans, sorted_copy
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet, size_new
from otel_lightning.collector.refresh.logs_without_trace import refresh_logs_without_trace
from otel_lightning.collector.refresh.rollouts import rollout_rows
from otel_lightning.collector.refresh.rollouts.rollout_rows import NewRows
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.refresh.time_ranges.recent_traces import least_time, recent_traces
from otel_lightning.collector.store import OutOfMemoryError, Sql, Store, statement
from otel_lightning.collector.store.sql_text import literal

logger = logging.getLogger(__name__)
SPANS_AT_ONCE = 25_000
"""Number of spans that are derived together, unless one closed set has more: this bounds memory."""
TEXT_PER_COMMIT = 200_000_000
"""Rows of more bytes than this are committed and written to the file in parts, to bound memory."""
BREAKS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What deriving raises for a value that no reader expects; Arrow's errors are among them."""
_PORTIONING: WeakKeyDictionary[Store, Portioning] = WeakKeyDictionary()
"""Whether batches are derived in portions, by open store."""


def refresh(
    store: Store, spans_at_once: int = SPANS_AT_ONCE, backoff: Backoff | None = None
) -> int:
    """Derive some of the stale traces and log records.

    Args:
        store: A direct store.
        spans_at_once: About how many spans to derive together; more at once cost more memory.
        backoff: Decides which growing rollouts wait; without it, none do.

    Returns:
        Number of stale traces and log records that were derived; 0 if nothing is stale, or
        everything stale waits.
    """
    logs = refresh_logs_without_trace(store)
    parsed = _parsed(store)
    pace = backoff or Backoff()
    try:
        # The rows are freed before the cycle collector runs again.
        with _uncollected(parsed):
            return logs + _refresh_traces(store, spans_at_once, pace, parsed)
    except BREAKS:
        logger.exception("Some traces cannot be derived together: each is tried alone")
        with _uncollected(parsed):
            return logs + _refresh_traces(store, spans_at_once, pace, parsed, schemas(store))


def refresh_with_more_memory(
    store: Store, spans_at_once: int = SPANS_AT_ONCE, backoff: Backoff | None = None
) -> int:
    """Refresh; raise the memory limit for one refresh if a rollout does not fit it."""
    try:
        return refresh(store, spans_at_once, backoff)
    except OutOfMemoryError:
        logger.warning("A rollout does not fit --memory: it is derived with more memory, once")
        with store.with_more_memory():
            return refresh(store, spans_at_once, backoff)


class Stale(NamedTuple):
    """The traces and log records that are not derived yet."""

    new_ids: int
    """Number of traces and log records that were received since a given time."""
    new_ns: int | None
    """When the first of those was received, Unix nanoseconds."""
    oldest_ns: int | None
    """When the first of all was received, Unix nanoseconds."""
    put_off_ns: int | None
    """When the first of those that were put off was received; they count nowhere else."""
    has_undated: bool
    """Whether some have no time, because nobody was to derive them when they were stored."""


def find_stale(store: Store, since_ns: int = 0, waiting: Iterable[str] = ()) -> Stale:
    """Return the number of stale traces and log records, and since when they are stale.

    Args:
        store: Any store.
        since_ns: Traces and log records that were received since then are new.
        waiting: Ids of the rollouts that were put off, which only `put_off_ns` tells.
    """
    select = statement(__package__, "find_stale", since=since_ns, waiting=[*waiting] or [""])
    return Stale(**store.query(select).to_pylist()[0])


def rebuild(store: Store) -> None:
    """Empty the derived tables and mark everything received as stale."""
    forget_kept(store)
    tables = (*TABLES, rollout_rows.TABLE, "trace_keys", "stale")
    deletes = Sql("".join(f"DELETE FROM {table};" for table in tables))
    store.execute(statement(__package__, "rebuild", deletes=deletes))


def forget_kept(store: Store) -> None:
    """Drop the parsed traces of a store. Call it after rows of any trace were deleted."""
    _parsed(store).clear()
    _parsed(store).memory.clear()


def _parsed(store: Store) -> ParsedTraces:
    """Return the parsed traces of rollouts that grow; a transaction that is undone clears them."""
    return store.cache(ParsedTraces)


def _refresh_traces(
    store: Store,
    spans_at_once: int,
    backoff: Backoff,
    parsed: ParsedTraces,
    trial_schemas: Mapping[str, pa.Schema] | None = None,
) -> int:
    if not store.column("SELECT 1 FROM stale WHERE kind = 'trace' LIMIT 1"):
        sorted_copy.forget(store)
        return 0
    began = backoff.clock()
    with store.transaction():
        size_new(store, [""])
        waiting = backoff.waiting()
        batch, closed = _read_picked(store, spans_at_once, waiting, parsed, trial_schemas)
        if not closed.size() and (fewer := backoff.waiting(alone=True)) != waiting:
            batch, closed = _read_picked(store, spans_at_once, fewer, parsed, trial_schemas)
        if not (done := closed.size()):
            return 0
        batch.put_together()
        columns, new = schemas(store), NewRows()
        traces = closed.trace_ids()
        # For all traces of the set, before the unchanged ones are taken out of it: a rollout's row
        # is made from all of its calls.
        closed.delete_rows([rollout_rows.TABLE])
        closed.delete_tasks()
        closed.keep_rows(batch.unchanged)
        closed.delete_rows(PER_TRACE, but=batch.changes)
        late_spans.replace_changed(store, batch.changes, recent_traces(store))
        for table, some in batch.unchanged_rows(_read_columns(columns)):
            new.add(table, some)
        kept = {*batch.unchanged, *batch.changes}
        replaced = [one for one in traces if one not in kept]
        writing = _Writing(closed, replaced, batch.tables(columns), new, batch)
        is_whole = writing.insert_some(store)
    # The first part is committed; the traces stay stale until the last part is.
    if not is_whole:
        writing.insert_rest(store)
    backoff.note(batch.sizes, began)
    return done


def replace_rows(store: Store, closed: ClosedSet, rows: Iterator[tuple[str, pa.Table]]) -> int:
    """Replace the derived rows of a closed set that was suspended; it is up to date then.

    Returns:
        Number of its traces.
    """
    _parsed(store).clear()  # a worker derived these traces: what is kept of them is out of date
    writing = _Writing(closed, closed.trace_ids(), rows, NewRows())
    with store.transaction():
        closed.delete_rows((*PER_TRACE, rollout_rows.TABLE))
        closed.delete_tasks()
        is_whole = writing.insert_some(store)
    if not is_whole:
        writing.insert_rest(store)
    return len(writing.replaced)


@dataclass(frozen=True, slots=True)
class _Writing:
    """The writing of the derived rows of a closed set, in one commit or in several."""

    closed: ClosedSet
    replaced: Sequence[str]
    """The traces of which all former rows were deleted."""
    rows: Iterator[tuple[str, pa.Table]]
    """The rows that are left to insert."""
    new: NewRows
    """Gets the columns that rows of rollouts are made from."""
    batch: Batch | None = None
    """The batch that derived the rows; None if a worker did."""

    def insert_rest(self, store: Store) -> None:
        """Insert the rows of a very long rollout part by part: it stays stale until the last."""
        is_whole = False
        while not is_whole:
            store.checkpoint()
            with store.transaction():
                is_whole = self.insert_some(store)

    def insert_some(self, store: Store) -> bool:
        """Insert rows up to the limit of one commit; return whether none are left.

        Call it in a transaction. It notes in memory which rows the store has: if the transaction
        is undone, what was noted is cleared.
        """
        size = 0
        for table, some in self.rows:
            # A judgement without a trace may have stated the task before.
            if table == "rollout_tasks":
                rollouts = literal(some["rollout_id"].to_pylist())
                store.execute(f"DELETE FROM rollout_tasks WHERE rollout_id IN {rollouts}")
            store.insert(table, some)
            self.new.add(table, some)
            least_time(table, some, self.new.least)
            size += some.nbytes
            if size > TEXT_PER_COMMIT:
                self._note_derived(store)
                return False
        self.new.keep_rollouts(store)
        self.closed.settle()
        self._note_derived(store)
        if self.batch is not None:
            self.batch.note_stored()
        return True

    def _note_derived(self, store: Store) -> None:
        """Note where the rows are: their least times are those of the rows inserted so far."""
        unchanged = self.batch.unchanged if self.batch else ()
        changes = self.batch.changes if self.batch else ()
        recent_traces(store).derived(self.replaced, unchanged, self.new.least, changes)


def _portioning(store: Store) -> Portioning:
    if store not in _PORTIONING:
        _PORTIONING[store] = Portioning(schemas(store))
    return _PORTIONING[store]


def _read_columns(columns: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """Return the columns that the rows of rollouts are made from, and the trace id."""
    return {
        table: pa.schema([one for one in columns[table] if one.name in {"trace_id", *names}])
        for table, names in rollout_rows.READ.items()
    }


def _read_picked(
    store: Store,
    spans_at_once: int,
    waiting: Sequence[str],
    parsed: ParsedTraces,
    trial_schemas: Mapping[str, pa.Schema] | None,
) -> tuple[Batch, ClosedSet]:
    """Read some stale traces, and all traces that their keys lead to.

    A trace that turns out to belong to a rollout that waits is put off, and others are picked.
    """
    # Each round picks anew, because `has_to_wait` has put off some of the stale traces.
    while True:
        batch = Batch(parsed, trial_schemas, _portioning(store))
        closed = ClosedSet(store, spans_at_once, waiting)
        while not closed.is_complete():
            tied = []
            # Traces without new spans that are kept parsed are not read again.
            if known := [one for one in closed.settled() if one in parsed] if len(parsed) else []:
                tied.append(batch.recall(known))
                closed.leave_out(known)
            if not closed.is_complete():
                resumed = late_spans.resume(store, closed, batch, parsed, recent_traces(store))
                tied += resumed.values()
                # Before the spans, whose stream must be the last statement until it is read to its
                # end.
                logs = closed.logs(but=resumed)
                if len(resumed) < len(closed.frontier()):
                    tied.append(batch.read(closed.spans(), logs))
            closed.follow(pa.concat_tables(tied))
            if closed.has_to_wait():
                break
        else:
            return batch, closed


@contextmanager
def _uncollected(parsed: ParsedTraces) -> Iterator[None]:
    """Pause Python's cycle collector: it would visit all rows, which hold no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if parsed.is_empty:
            # No rollout grows, so no later batch needs the messages.
            parsed.memory.clear()
        if was_enabled:
            gc.enable()
