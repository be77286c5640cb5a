"""Derive one batch of traces: Arrow in, Arrow out.

It uses no store, and no state of the process that changes its rows, so it runs in any process: the
one that holds the store, a worker, a job on a cluster.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from otel_lightning.collector.derive.assemble import assemble_rows
from otel_lightning.collector.derive.batches import from_arrow, to_arrow
from otel_lightning.collector.derive.batches.copied_rows import copied
from otel_lightning.collector.derive.batches.large_traces import LARGE_SPANS, large
from otel_lightning.collector.derive.batches.parsed_traces import ParsedTraces
from otel_lightning.collector.derive.batches.portions import Portioning, Portions, split_by_size
from otel_lightning.collector.derive.batches.rollout_sizes import Counts, Size, sizes
from otel_lightning.collector.derive.batches.rows_by_trace import (
    Change,
    Rows,
    RowsByKey,
    by_trace,
    change,
    only,
    only_tables,
    rows_by_key,
    values_of,
    with_rows,
    without,
)
from otel_lightning.collector.derive.batches.trace_by_trace import read_derivable
from otel_lightning.collector.derive.links import Ties, ties
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.parse import ParsedRows, complete_calls, read
from otel_lightning.collector.derive.rows import Derived
from otel_lightning.collector.derive.tables import TABLES

TIES = pa.schema([(name, pa.string()) for name in Ties._fields])


class Batch:
    """Traces that are derived together.

    Call `read` for some traces. It returns their keys, which lead to further traces of the same
    closed set; call it, or `recall`, for those too. When no key leads to another trace, call
    `tables`; call `assemble_rows` before if you need `unchanged`.
    """

    def __init__(
        self,
        cache: ParsedTraces | None = None,
        trial_schemas: Mapping[str, pa.Schema] | None = None,
        portioning: Portioning | None = None,
    ) -> None:
        """Begin without traces.

        Args:
            cache: Keeps the parsed traces of rollouts that grow, from one batch to the next.
            trial_schemas: If given, each trace is first derived alone into tables with these
                columns (those of `TABLES`), and left out if that fails.
            portioning: If given, many spans are derived in portions, which takes less CPU time.
        """
        self._memory = MessageMemory() if cache is None else cache.memory
        self._parsed, self._recalled = ParsedRows(memory=self._memory), ParsedRows()
        self._continued = ParsedRows()
        self._large: dict[str, ParsedRows] = {}  # large traces that were read as a whole
        self._late: dict[str, ParsedRows] = {}  # the late spans of large traces that are kept
        self._keys = Ties([], [], [])
        self._cache, self._trial_schemas = cache, trial_schemas
        self._portioning = None if trial_schemas else portioning
        self._portions = Portions()
        self._outside_portions: list[Ties] = []
        """The keys of the traces that are in no portion."""
        self._picked: set[str] = set()
        """The traces that were picked; keys led to all others."""
        self._has_read = False
        self.sizes: dict[str, Size] = {}
        """Size of each rollout, and by its id of each trace without one; set by `assemble_rows`."""
        self.unchanged: set[str] = set()
        """Traces whose rows are those that the store has already, set by `assemble_rows`."""
        self.changes: dict[str, Change] = {}
        """How the rows of the large traces differ from those that the store has, set by
        `assemble_rows`. A trace that was read as a whole is missing: all its rows are new."""
        self._derived: Derived | None = None
        self._written: dict[str, Rows] = {}
        self._written_large: dict[str, RowsByKey] = {}

    def read(self, spans: Iterable[pa.RecordBatch], logs: pa.Table) -> pa.Table:
        """Read whole traces.

        Args:
            spans: Their spans, with the columns of `refresh/sql/spans.sql`.
            logs: The log records that name these traces, with the columns of
                `refresh/sql/logs.sql`.

        Returns:
            The keys that tie these traces to others: the columns `trace_id`, `key` and `seeks`, the
            key of the traces that it belongs with.
        """
        is_first, self._has_read = not self._has_read, True
        if not is_first or self._portioning is None:
            return _table(self._read(spans, logs, are_picked=is_first))
        batches = list(spans)
        if not self._portioning.applies(sum(len(one) for one in batches)):
            return _table(self._read(batches, logs, are_picked=True))
        small, long = split_by_size(pa.Table.from_batches(batches), LARGE_SPANS)
        keys = self._read_in_portions(small, logs, self._portioning)
        if len(long):
            of_long = logs.filter(pc.is_in(logs["trace_id"], value_set=pc.unique(long["trace_id"])))
            keys.add(self._read(long.to_batches(), of_long, are_picked=True))
        return _table(keys)

    def _read(self, spans: Iterable[pa.RecordBatch], logs: pa.Table, *, are_picked: bool) -> Ties:
        given = from_arrow.spans(spans, self._memory), from_arrow.logs(logs), self._memory
        trial = self._trial_schemas
        some = read(*given) if trial is None else read_derivable(*given, trial)
        if self._cache is not None and trial is None:
            self._large |= large(some)
        complete_calls(some)
        keys = ties(some)
        self._parsed.add(some)
        self._outside_portions.append(keys)
        self._note_read(some.trace_ids(), keys, are_picked=are_picked)
        return keys

    def _read_in_portions(self, spans: pa.Table, logs: pa.Table, portioning: Portioning) -> Ties:
        self._portions = Portions.of(spans, logs, portioning)
        keys = Ties([], [], [])
        for own in self._portions.ties():
            keys.add(own)
        self._note_read(self._portions.traces(), keys, are_picked=True)
        return keys

    def _note_read(self, traces: set[str], keys: Ties, *, are_picked: bool) -> None:
        if are_picked:
            self._picked |= traces
        if self._cache is not None:
            self._cache.drop(traces)
            self._cache.large.drop(traces)
            self._keys.add(keys)

    def recall(self, trace_ids: Iterable[str]) -> pa.Table:
        """Add traces that the cache has, instead of reading them; return their keys as `read` does.

        Raises:
            KeyError: If one of them is not kept.
        """
        some, keys = (self._cache or ParsedTraces()).of(trace_ids)
        self._recalled.add(some)
        self._outside_portions.append(keys)
        return _table(keys)

    def resume(
        self, trace_id: str, spans: Iterable[pa.RecordBatch], logs: pa.Table | None, count: int
    ) -> pa.Table | None:
        """Add a large trace that the cache has; read only what came late.

        Args:
            trace_id: The trace.
            spans: The spans that came since it was kept, and those that log records name which came
                since. Others may be among them.
            logs: The log records that came since, and all that name one of these spans; None if no
                span came.
            count: Number of spans that the trace has in the store.

        Returns:
            The keys as `read` returns them; None if the kept spans with the late ones are not those
            of the store, or if spans that are not late need the log records: then read the whole
            trace.
        """
        large_traces = None if self._cache is None else self._cache.large
        if large_traces is None or large_traces.written(trace_id) is None:
            return None
        late = ParsedRows()
        if logs is not None:
            late = read(from_arrow.spans(spans, self._memory), from_arrow.logs(logs), self._memory)
        some = large_traces.with_late(trace_id, late)
        if len(some.nodes) != count or late.mixed:
            return None
        some.memory = self._memory
        complete_calls(some)
        self._late[trace_id] = late
        self._continued.add(some)
        if logs is not None:
            self._picked.add(trace_id)
        keys = ties(some)
        self._outside_portions.append(keys)
        return _table(keys)

    def assemble_rows(self) -> None:
        """Derive the rows of all traces. Call it once, after the last `read`."""
        self._take_tied_portions()
        grows = self._cache is not None and self._grows()
        # Before the rows are changed in place. Recalled traces are kept already.
        copies = copied(self._parsed) if grows else None
        self._parsed.add(self._recalled)
        self._parsed.add(self._continued)
        derived = self._derived = assemble_rows(self._parsed)
        spans_of = self._parsed.spans_by_trace()
        self.sizes = sizes([*self._portions.counts(), Counts.of(derived, spans_of)])
        if self._cache is not None and copies is not None:
            growing = self._growing(derived, copies) - self._large.keys()
            self._cache.keep(copies, self._keys, growing)
            recalled = self._recalled.trace_ids()
            own = by_trace(derived, growing | recalled)
            self._written = {trace_id: values_of(rows) for trace_id, rows in own.items()}
            self.unchanged = self._cache.unchanged(self._written)
        if self._cache is not None and (self._large or self._late):
            self._keep_large(self._cache, derived)

    def _keep_large(self, cache: ParsedTraces, derived: Derived) -> None:
        large_traces = cache.large
        own = by_trace(derived, self._large.keys() | self._late.keys())
        self._written_large = {trace_id: rows_by_key(rows) for trace_id, rows in own.items()}
        for trace_id in self._late:
            before, after = large_traces.written(trace_id), self._written_large[trace_id]
            self.changes[trace_id] = change(before or rows_by_key({}), after, own[trace_id])
        for trace_id, parsed in self._large.items():
            large_traces.keep(trace_id, parsed)
        for trace_id, late in self._late.items():
            if trace_id in large_traces:
                large_traces.add(trace_id, late)

    def tables(self, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the derived rows of all traces that changed: a table's name and some of its rows.

        Args:
            schemas: The columns of each of `TABLES`.
        """
        if self._derived is None:
            self.assemble_rows()
        rows = without(self._derived or Derived(), self.unchanged | self.changes.keys())
        for trace_id, changed in self.changes.items():
            rows = with_rows(rows, trace_id, changed.new)
        rows = replace(
            rows,
            tasks=self._portions.tasks() | rows.tasks,
            tasks_stated_by=self._portions.stated_by() | rows.tasks_stated_by,
        )
        yield from to_arrow.tables(rows, schemas)
        yield from self._portions.tables()

    def unchanged_rows(self, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows that the store has already.

        Args:
            schemas: The columns to yield of each of `TABLES`, two or more. Tables
                without an entry are left out.
        """
        if self._derived and (self.unchanged or self.changes):
            rows = only(self._derived, self.unchanged)
            for trace_id, changed in self.changes.items():
                rows = with_rows(rows, trace_id, changed.same)
            rows = only_tables(rows, schemas.keys())
            left_out = dict.fromkeys(TABLES, pa.schema([]))
            yield from to_arrow.tables(rows, {**left_out, **schemas})

    def note_stored(self) -> None:
        """Note that the store has the rows of this batch.

        Call it within the transaction that writes them, since an undone one clears what is noted.
        """
        if self._cache is not None:
            self._cache.note_stored(self._written)
            for trace_id, rows in self._written_large.items():
                self._cache.large.note_stored(trace_id, rows)

    def _take_tied_portions(self) -> None:
        """Read the traces of portions again that belong with traces outside of their portion."""
        if self._portioning is None or not (count := len(self._portions.traces())):
            return
        again = self._portions.take_tied(self._outside_portions, self._memory)
        self._parsed.add(again)
        self._portioning.note(count, len(again.trace_ids()))

    def _grows(self) -> bool:
        """Return whether keys led from the traces that were picked to others."""
        read = self._parsed.trace_ids() | self._late.keys()
        return bool(self._recalled.nodes) or not read <= self._picked

    def _growing(self, derived: Derived, copies: ParsedRows) -> set[str]:
        """Return the traces that were read for rollouts with calls in traces of earlier batches."""
        picked = self._picked
        grown = {call.rollout_id for call in derived.llm_calls if call.trace_id not in picked}
        grown.discard(None)
        own = copies.trace_ids()
        traces = {call.trace_id for call in derived.llm_calls if call.rollout_id in grown}
        return traces & own


def _table(keys: Ties) -> pa.Table:
    return pa.Table.from_arrays([pa.array(one, pa.string()) for one in keys], schema=TIES)
