"""Derive one batch of traces: Arrow in, Arrow out.

It uses no store, and no state of the process that changes its rows, so it runs in any process: the
one that holds the store, a worker, a job on a cluster.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from otel_lightning.collector.derive import from_arrow, to_arrow
from otel_lightning.collector.derive.assemble import put_together
from otel_lightning.collector.derive.links import Ties, ties
from otel_lightning.collector.derive.parse import Reading, fold_requests, read
from otel_lightning.collector.derive.parsed import ParsedTraces, Rows, copied
from otel_lightning.collector.derive.portions import Portioning, Portions
from otel_lightning.collector.derive.rows import Derived
from otel_lightning.collector.derive.rows_by_trace import by_trace, only, without
from otel_lightning.collector.derive.sizes import Counts, Size, sizes
from otel_lightning.collector.derive.text.message_memory import MessageMemory
from otel_lightning.collector.derive.trace_by_trace import read_derivable

TIES = pa.schema([(name, pa.string()) for name in Ties._fields])


class Batch:
    """Traces that are derived together.

    Call `read` for some traces. It returns their keys, which lead to further traces of the same
    closed set; call it, or `recall`, for those too. When no key leads to another trace, call
    `tables`; call `put_together` before if you need `unchanged`.
    """

    def __init__(
        self,
        parsed: ParsedTraces | None = None,
        trial_schemas: Mapping[str, pa.Schema] | None = None,
        portioning: Portioning | None = None,
    ) -> None:
        """Begin without traces.

        Args:
            parsed: Keeps the parsed traces of rollouts that grow, from one batch to the next.
            trial_schemas: If given, each trace is first derived alone into tables with these
                columns (those of `to_arrow.TABLES`), and left out if that fails.
            portioning: If given, many spans are derived in portions, which takes less CPU time.
        """
        self._memory = MessageMemory() if parsed is None else parsed.memory
        self._found, self._recalled = Reading(memory=self._memory), Reading()
        self._tied = Ties([], [], [])
        self._parsed, self._trial_schemas = parsed, trial_schemas
        self._portioning = None if trial_schemas else portioning
        self._portions = Portions()
        self._others: list[Ties] = []
        """The keys of the traces that were not read first."""
        self._picked: set[str] | None = None
        self.sizes: dict[str, Size] = {}
        """Size of each rollout, and by its id of each trace without one; set by `put_together`."""
        self.unchanged: set[str] = set()
        """Traces whose rows are those that the store has already, set by `put_together`."""
        self._derived: Derived | None = None
        self._written: dict[str, Rows] = {}

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
        # The first `read` has the traces that were picked; later ones have those that keys led to.
        if self._picked is None and self._portioning is not None:
            batches = list(spans)
            if self._portioning.applies(sum(len(one) for one in batches)):
                return self._read_in_portions(batches, logs, self._portioning)
            spans = batches
        given = from_arrow.spans(spans, self._memory), from_arrow.logs(logs), self._memory
        trial = self._trial_schemas
        some = read(*given) if trial is None else read_derivable(*given, trial)
        fold_requests(some)
        tied = ties(some)
        self._found.add(some)
        self._note_read({trace_id for trace_id, _ in some.nodes}, tied)
        return _table(tied)

    def _read_in_portions(
        self, spans: list[pa.RecordBatch], logs: pa.Table, portioning: Portioning
    ) -> pa.Table:
        self._portions = Portions.of(pa.Table.from_batches(spans), logs, portioning)
        tied = Ties([], [], [])
        for own in self._portions.ties():
            _append(tied, own)
        self._note_read(self._portions.traces(), tied)
        return _table(tied)

    def _note_read(self, traces: set[str], tied: Ties) -> None:
        if self._picked is None:
            self._picked = traces
        else:
            self._others.append(tied)
        if self._parsed is not None:
            self._parsed.drop(traces)
            _append(self._tied, tied)

    def recall(self, trace_ids: Iterable[str]) -> pa.Table:
        """Add traces that `parsed` has, instead of reading them; return their keys as `read` does.

        Raises:
            KeyError: If one of them is not kept.
        """
        tied, parsed = Ties([], [], []), self._parsed or ParsedTraces()
        for trace_id in trace_ids:
            some, own = parsed.of(trace_id)
            self._recalled.add(some)
            _append(tied, own)
        self._others.append(tied)
        return _table(tied)

    def put_together(self) -> None:
        """Derive the rows of all traces. Call it once, after the last `read`."""
        self._take_tied_portions()
        grows = self._parsed is not None and self._grows()
        # Before the rows are changed in place. Recalled traces are kept already.
        kept = copied(self._found) if grows else None
        self._found.add(self._recalled)
        derived = self._derived = put_together(self._found)
        spans_of = Counter(trace_id for trace_id, _ in self._found.nodes)
        self.sizes = sizes([*self._portions.counts(), Counts.of(derived, spans_of)])
        if self._parsed is not None and kept is not None:
            growing = self._growing(derived, kept)
            self._parsed.keep(kept, self._tied, growing)
            recalled = {trace_id for trace_id, _ in self._recalled.nodes}
            self._written = by_trace(derived, growing | recalled)
            self.unchanged = self._parsed.unchanged(self._written)

    def tables(self, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the derived rows of all traces that changed: a table's name and some of its rows.

        Args:
            schemas: The columns of each table of `to_arrow.TABLES`.
        """
        if self._derived is None:
            self.put_together()
        rest = without(self._derived or Derived(), self.unchanged)
        rest = replace(rest, tasks=self._portions.tasks() | rest.tasks)
        yield from to_arrow.tables(rest, schemas)
        yield from self._portions.tables()

    def unchanged_rows(self, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of the traces in `unchanged`, without their columns of JSON."""
        if self.unchanged and self._derived:
            rows = only(self._derived, self.unchanged)
            yield from to_arrow.tables(rows, schemas, has_json=False)

    def committed(self) -> None:
        """Note that the store has the rows of this batch."""
        if self._parsed is not None:
            self._parsed.wrote(self._written)

    def _take_tied_portions(self) -> None:
        """Read the traces of portions again that belong with traces outside of their portion."""
        if self._portioning is None or not (read_first := len(self._portions.traces())):
            return
        again = self._portions.take_tied(self._others, self._memory)
        self._found.add(again)
        self._portioning.note(read_first, len({trace_id for trace_id, _ in again.nodes}))

    def _grows(self) -> bool:
        """Tell whether keys led from the traces that were picked to others."""
        return bool(self._others)

    def _growing(self, derived: Derived, kept: Reading) -> set[str]:
        """Return the traces that were read for rollouts with calls in traces of earlier batches."""
        picked = self._picked or set()
        grown = {call.rollout_id for call in derived.llm_calls if call.trace_id not in picked}
        grown.discard(None)
        own = {trace_id for trace_id, _ in kept.nodes}
        traces = {call.trace_id for call in derived.llm_calls if call.rollout_id in grown}
        return traces & own


def _append(tied: Ties, more: Ties) -> None:
    for column, values in zip(tied, more, strict=True):
        column.extend(values)


def _table(tied: Ties) -> pa.Table:
    return pa.Table.from_arrays([pa.array(one, pa.string()) for one in tied], schema=TIES)
