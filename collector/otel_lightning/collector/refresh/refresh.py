"""Keep the derived tables current: pick stale traces, derive them, replace their rows.

A new span can change more than its own trace: the other turns of its conversation, the calls of a
message history that it continues. `trace_keys` holds the keys that tie traces together. Following
the keys gives a closed set of traces. Its rows are derived again and replace the old ones in one
transaction, so the tables do not depend on the order in which the spans arrived.
"""

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import pyarrow as pa

from otel_lightning.collector.derive.batches.batch import Batch
from otel_lightning.collector.derive.batches.parsed_traces import ParsedTraces
from otel_lightning.collector.derive.batches.portions import Portioning
from otel_lightning.collector.derive.batches.tied_keys import TiedKeys
from otel_lightning.collector.derive.tables import TABLES
from otel_lightning.collector.refresh.backoff import Backoff
from otel_lightning.collector.refresh.closed_set import late_spans, sorted_copy
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet, size_new
from otel_lightning.collector.refresh.logs_without_trace import refresh_logs_without_trace
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.refresh.write_rows import replace_changed_rows
from otel_lightning.collector.store import OutOfMemoryError, Sql, Store, statement
from otel_lightning.collector.store.tables import REFRESHING, ROLLOUT_ROWS

logger = logging.getLogger(__name__)
REBUILD = "lightning_rebuild"
"""The SQL function that makes the process that serves a store `rebuild` it."""
SPANS_AT_ONCE = 25_000
"""Number of spans that are derived together, unless one closed set has more: this bounds memory."""
BREAKS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of deriving for a value that no reader expects; `ArrowInvalid` is a `ValueError`."""
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
    together = _Refresh(store, spans_at_once, backoff or Backoff(), _parsed(store))
    try:
        # The rows are freed before the cycle collector runs again.
        with _uncollected(together.parsed):
            return logs + together.run()
    except BREAKS:
        logger.exception("Some traces cannot be derived together: each is tried alone")
        alone = replace(together, trial_schemas=schemas(store))
        with _uncollected(alone.parsed):
            return logs + alone.run()


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


def rebuild(store: Store) -> None:
    """Empty the derived tables and mark everything received as stale.

    Args:
        store: A direct store, in the thread that derives: what is kept of traces is dropped, too.
    """
    forget_kept(store)
    tables = (*TABLES, ROLLOUT_ROWS, *REFRESHING)
    deletes = Sql("".join(f"DELETE FROM {table};" for table in tables))
    with store.transaction():
        store.execute(statement(__package__, "rebuild", deletes=deletes))


def forget_kept(store: Store) -> None:
    """Drop the parsed traces of a store. Call it after rows of any trace were deleted."""
    _parsed(store).clear()
    _parsed(store).memory.clear()


def _parsed(store: Store) -> ParsedTraces:
    """Return the parsed traces of rollouts that grow; a transaction that is undone clears them."""
    return store.cache(ParsedTraces)


@dataclass(frozen=True, slots=True)
class _Refresh:
    """One refresh of traces in this process."""

    store: Store
    spans_at_once: int
    backoff: Backoff
    parsed: ParsedTraces
    trial_schemas: Mapping[str, pa.Schema] | None = None
    """The columns of each table, if each trace is tried alone."""

    def run(self) -> int:
        """Derive some of the stale traces; return their number."""
        store = self.store
        if not store.column("SELECT 1 FROM stale WHERE kind = 'trace' LIMIT 1"):
            sorted_copy.forget(store)
            return 0
        began = self.backoff.clock()
        with store.transaction():
            size_new(store)
            batch, closed = self._pick()
            if not (size := closed.size()):
                return 0
            batch.assemble_rows()
            writing = replace_changed_rows(store, closed, batch)
            is_whole = writing.insert_some(store)
        # The first part is committed; the traces stay stale until the last part is.
        if not is_whole:
            writing.insert_rest(store)
        self.backoff.note(batch.sizes, began)
        return size

    def _pick(self) -> tuple[Batch, ClosedSet]:
        """Read some stale traces and all that belong with them; none if all have to wait."""
        waiting = self.backoff.waiting()
        batch, closed = self._pick_others(waiting)
        if not closed.size() and (fewer := self.backoff.waiting(alone=True)) != waiting:
            return self._pick_others(fewer)
        return batch, closed

    def _pick_others(self, waiting: Sequence[str]) -> tuple[Batch, ClosedSet]:
        """Read some stale traces that do not belong to rollouts that wait.

        A trace that turns out to belong to one is put off, and others are picked.
        """
        while True:
            batch = Batch(self.parsed, self.trial_schemas, _portioning(self.store))
            closed = ClosedSet(self.store, self.spans_at_once, waiting)
            if self._read_all(batch, closed):
                return batch, closed

    def _read_all(self, batch: Batch, closed: ClosedSet) -> bool:
        """Read the traces of a closed set; return False once some of them have to wait."""
        while not closed.is_complete():
            closed.follow(TiedKeys.of(self._read_frontier(batch, closed)))
            if closed.has_to_wait():
                return False
        return True

    def _read_frontier(self, batch: Batch, closed: ClosedSet) -> pa.Table:
        """Read the next traces of a closed set; return their keys."""
        keys = []
        # Traces without new spans that are kept parsed are not read again.
        if kept_parsed := [one for one in closed.settled() if one in self.parsed]:
            keys.append(batch.recall(kept_parsed))
            closed.leave_out(kept_parsed)
        if not closed.is_complete():
            resumed = late_spans.resume(self.store, closed, batch, self.parsed)
            keys += resumed.values()
            # Before the spans, whose stream must be the last statement until it is read to its end.
            logs = closed.logs(but=resumed)
            if len(resumed) < len(closed.frontier()):
                keys.append(batch.read(closed.spans(), logs))
        return pa.concat_tables(keys)


def _portioning(store: Store) -> Portioning:
    if store not in _PORTIONING:
        _PORTIONING[store] = Portioning(schemas(store))
    return _PORTIONING[store]


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
