"""Write the derived rows of a closed set in place of its former ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from otel_lightning.collector.derive.batches.batch import Batch
from otel_lightning.collector.derive.batches.parsed_traces import ParsedTraces
from otel_lightning.collector.derive.tables import PER_TRACE
from otel_lightning.collector.refresh.closed_set import late_spans
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet
from otel_lightning.collector.refresh.rollouts import rollout_rows, totals
from otel_lightning.collector.refresh.rollouts.rollout_rows import NewRows
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.refresh.time_ranges.time_bounds import note_earliest
from otel_lightning.collector.store import Store
from otel_lightning.collector.store.sql_text import literal
from otel_lightning.collector.store.tables import ROLLOUT_ROWS

BYTES_PER_COMMIT = 200_000_000
"""Rows of more bytes than this are committed and written to the file in parts, to bound memory."""


def replace_rows(store: Store, closed: ClosedSet, rows: Iterator[tuple[str, pa.Table]]) -> int:
    """Replace the derived rows of a closed set that a worker derived; it is up to date then.

    Returns:
        Number of its traces.
    """
    store.cache(ParsedTraces).clear()  # what is kept of these traces is out of date
    writing = Writing(closed, closed.trace_ids(), rows, NewRows())
    with store.transaction():
        closed.delete_rows((*PER_TRACE, ROLLOUT_ROWS))
        closed.delete_tasks()
        is_whole = writing.insert_some(store)
    if not is_whole:
        writing.insert_rest(store)
    return len(writing.replaced)


def replace_changed_rows(store: Store, closed: ClosedSet, batch: Batch) -> "Writing":
    """Delete the rows of a closed set that a batch changes; the result inserts the new ones.

    Args:
        store: A direct store, in a transaction.
        closed: The traces; those that stay as they are are taken out of it.
        batch: The batch, put together.
    """
    columns, new = schemas(store), NewRows()
    traces = closed.trace_ids()
    # For all traces of the set, before the unchanged ones are taken out of it: a rollout's row is
    # made from all of its calls.
    closed.delete_rows([ROLLOUT_ROWS])
    closed.delete_tasks()
    closed.keep_rows(batch.unchanged)
    closed.delete_rows(PER_TRACE, but=batch.changes)
    late_spans.replace_changed(store, batch.changes)
    for table, some in batch.unchanged_rows(_columns_of_rollouts(columns)):
        new.add(table, some)
    unchanged = {*batch.unchanged, *batch.changes}
    replaced = [one for one in traces if one not in unchanged]
    return Writing(closed, replaced, batch.tables(columns), new, batch)


def _columns_of_rollouts(columns: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """Return the columns that the rows of rollouts are made from, and the trace id."""
    return {
        table: pa.schema([one for one in columns[table] if one.name in {"trace_id", *names}])
        for table, names in rollout_rows.READ_COLUMNS.items()
    }


@dataclass(frozen=True, slots=True)
class Writing:
    """The writing of the derived rows of a closed set, in one commit or in several."""

    closed: ClosedSet
    replaced: Sequence[str]
    """The traces whose former rows were all deleted."""
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
            if table != totals.TABLE:
                store.insert(table, some)
            self.new.add(table, some)
            note_earliest(table, some, self.new.earliest)
            size += some.nbytes
            if size > BYTES_PER_COMMIT:
                self._note_derived(store)
                return False
        self.new.keep_rollouts(store)
        self.closed.settle()
        self._note_derived(store)
        if self.batch is not None:
            self.batch.note_stored()
        return True

    def _note_derived(self, store: Store) -> None:
        """Record the earliest times of the rows that were inserted so far."""
        unchanged = self.batch.unchanged if self.batch else ()
        changes = self.batch.changes if self.batch else ()
        recent_traces(store).derived(self.replaced, unchanged, self.new.earliest, changes)
