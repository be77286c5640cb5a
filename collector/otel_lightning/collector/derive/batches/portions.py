"""Derive a batch in portions that fit the processor's cache.

The Python objects of 25,000 spans take some 300 MB, and each of them is touched several times: when
it is made, put together, written and freed. Portions of about 2,000 spans use the same memory again
and again, which takes a seventh less CPU time.

The rows of a portion are derived before it is known which traces belong together. Where the keys
then tie a trace to one outside of its portion, the rows of the trace, and of all traces that belong
with it, are dropped, and these traces are parsed again with the others.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from otel_lightning.collector.derive.assemble import assemble_rows
from otel_lightning.collector.derive.batches import from_arrow, to_arrow
from otel_lightning.collector.derive.batches.rollout_sizes import Counts
from otel_lightning.collector.derive.links import Ties, ties
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.parse import ParsedRows, complete_calls, read
from otel_lightning.collector.derive.tables import PER_TRACE
from otel_lightning.collector.derive.union_find import Groups

SPANS = 2_000
"""Number of spans of a portion. Long traces are in no portion, see `apart`."""
MOST_PARSED_AGAIN = 0.2
"""Largest share of the traces of a batch that are parsed again, for portions to save time."""
BATCHES_WHOLE = 8
"""Number of batches that are derived whole after one in which more was parsed again."""
SEVERAL = -1
Tables = dict[str, list[pa.Table]]


@dataclass(slots=True)
class Portioning:
    """Whether the batches of one store, or one worker, are derived in portions."""

    schemas: Mapping[str, pa.Schema]
    """The columns of each of `derive.tables.TABLES`."""
    spans: int = SPANS
    """Number of spans of a portion."""
    whole: int = 0
    """Number of batches that will be derived whole, because ties between portions were many."""

    def applies(self, spans: int) -> bool:
        """Return whether to derive the next batch, which has this many spans, in portions."""
        if spans < 2 * self.spans:
            return False
        if self.whole:
            self.whole -= 1
            return False
        return True

    def note(self, traces: int, again: int) -> None:
        """Note how many of the traces of a batch were parsed again."""
        if again > MOST_PARSED_AGAIN * traces:
            self.whole = BATCHES_WHOLE


@dataclass(slots=True)
class Portion:
    """Some whole traces of a batch, and their rows as long as no other trace is tied to them."""

    spans: pa.Table
    logs: pa.Table
    traces: set[str]
    ties: Ties
    tables: Tables
    """The rows of the tables with a trace id."""
    tasks: dict[str, str]
    """Rollout id to task id."""
    stated_by: dict[str, str]
    """Rollout id to the trace that states its task."""
    counts: Counts


@dataclass(slots=True)
class Portions:
    """The portions of one batch."""

    _portions: list[Portion] = field(default_factory=list)

    @classmethod
    def of(cls, spans: pa.Table, logs: pa.Table, portioning: Portioning) -> "Portions":
        """Derive whole traces, portion by portion.

        Args:
            spans: Their spans, with the columns of `refresh/sql/spans.sql`.
            logs: The log records that name these traces.
            portioning: The size of a portion, and the columns of the tables.
        """
        cut = _cut(spans, portioning.spans) if len(spans) else ()
        return cls([_derived(some, logs, portioning.schemas) for some in cut])

    def traces(self) -> set[str]:
        """Return the ids of all traces."""
        return {trace_id for one in self._portions for trace_id in one.traces}

    def ties(self) -> Iterator[Ties]:
        """Yield the keys of each portion."""
        for one in self._portions:
            yield one.ties

    def take_tied(self, others: Sequence[Ties], memory: MessageMemory) -> ParsedRows:
        """Drop the rows of the traces that are tied to a trace outside of their portion.

        Args:
            others: The keys of the traces that were read beside these portions.
            memory: Shares equal messages between calls.

        Returns:
            These traces, parsed again; their keys stay those of `ties`.
        """
        parsed = ParsedRows(memory=memory)
        tied_outside = _tied_outside([*self.ties(), *others], len(self._portions))
        named = Counter(rollout for one in self._portions for rollout in one.tasks)
        for number, one in enumerate(self._portions):
            first = set(tied_outside[number])
            first |= {trace for name, trace in one.stated_by.items() if named[name] > 1}
            if first:
                parsed.add(_taken(one, _together(one.ties, first), memory))
        return parsed

    def tasks(self) -> dict[str, str]:
        """Return the task id of each rollout that has one."""
        return {rollout: task for one in self._portions for rollout, task in one.tasks.items()}

    def stated_by(self) -> dict[str, str]:
        """Return the trace that states the task of each rollout that has one."""
        return {rollout: one.stated_by[rollout] for one in self._portions for rollout in one.tasks}

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of the tables with a trace id: a table's name and some of its rows."""
        for name in PER_TRACE:
            some = [table for one in self._portions for table in one.tables.get(name, ())]
            yield from ((name, table) for table in _joined(some))

    def counts(self) -> list[Counts]:
        """Return the numbers of calls and spans of each portion."""
        return [one.counts for one in self._portions]


def split_by_size(spans: pa.Table, size: int) -> tuple[pa.Table, pa.Table]:
    """Return the spans of the traces with fewer spans than `size`, and those of all others."""
    codes = _codes(spans)
    is_small = (np.bincount(codes) < size)[codes]  # [spans]
    if is_small.all():
        return spans, spans.slice(0, 0)
    return spans.filter(pa.array(is_small)), spans.filter(pa.array(~is_small))


def _codes(spans: pa.Table) -> NDArray[np.int32]:
    """Return a number for the trace of each span, shape [spans], in the order of first spans."""
    coded = spans["trace_id"].combine_chunks().dictionary_encode()
    codes: NDArray[np.int32] = coded.indices.to_numpy()
    return codes


def _cut(spans: pa.Table, size: int) -> Iterator[pa.Table]:
    """Cut spans into portions of whole traces, in the order in which the traces begin."""
    codes = _codes(spans)
    counts = np.bincount(codes)
    portion_of_trace = (np.cumsum(counts) - counts) // size  # [traces]
    portions = portion_of_trace[codes]  # [spans]
    if np.any(portions[1:] < portions[:-1]):  # the spans of several portions are mixed
        order = np.argsort(portions, kind="stable")
        spans, portions = spans.take(pa.array(order)), portions[order]
    starts = np.flatnonzero(np.diff(portions, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(portions)], strict=True):
        yield spans.slice(start, end - start)


def _derived(spans: pa.Table, logs: pa.Table, schemas: Mapping[str, pa.Schema]) -> Portion:
    """Derive some whole traces as if no other trace was tied to them."""
    own = _of_traces(logs, pc.unique(spans["trace_id"]))
    parsed = _parsed(spans, own, MessageMemory())
    keys = ties(parsed)
    derived = assemble_rows(parsed)
    spans_of = parsed.spans_by_trace()
    counts = Counts.of(derived, spans_of)
    tasks, derived.tasks = derived.tasks, {}
    tables: Tables = defaultdict(list)
    for name, rows in to_arrow.tables(derived, schemas):
        tables[name].append(rows)
    return Portion(spans, own, {*spans_of}, keys, tables, tasks, derived.tasks_stated_by, counts)


def _parsed(spans: pa.Table, logs: pa.Table, memory: MessageMemory) -> ParsedRows:
    some = from_arrow.spans(spans.to_batches(), memory)
    parsed = read(some, from_arrow.logs(logs), memory)
    complete_calls(parsed)
    return parsed


def _tied_outside(ties_by_portion: Sequence[Ties], count: int) -> list[set[str]]:
    """Return the traces of each of the first `count` portions that are tied to another portion."""
    holders: dict[str, int] = {}
    for number, one in enumerate(ties_by_portion):
        for key in one.key:
            if holders.setdefault(key, number) != number:
                holders[key] = SEVERAL
    return [
        {
            trace_id
            for trace_id, seeks in zip(one.trace_id, one.seeks, strict=True)
            if holders.get(seeks, number) != number
        }
        for number, one in enumerate(ties_by_portion[:count])
    ]


def _together(own: Ties, first: Iterable[str]) -> set[str]:
    """Return these traces, and all traces of their portion that are tied to them."""
    groups = Groups[tuple[str, bool]]()  # of traces (True) and keys (False)
    for trace_id, key, seeks in zip(*own, strict=True):
        groups.join((trace_id, True), (key, False))
        groups.join((trace_id, True), (seeks, False))
    wanted = {groups.root((trace_id, True)) for trace_id in first}
    others = {name for name, is_trace in groups if is_trace and groups.root((name, True)) in wanted}
    return others | {*first}


def _taken(one: Portion, traces: Collection[str], memory: MessageMemory) -> ParsedRows:
    """Drop the rows of some traces from a portion; return these traces, parsed again."""
    wanted = pa.array([*traces], pa.string())
    parsed = _parsed(_of_traces(one.spans, wanted), _of_traces(one.logs, wanted), memory)
    one.counts.leave_out(traces)
    for name, tables in one.tables.items():
        one.tables[name] = [
            rows.filter(pc.invert(pc.is_in(rows["trace_id"], value_set=wanted))) for rows in tables
        ]
    for rollout_id, trace_id in one.stated_by.items():
        if trace_id in traces:
            one.tasks.pop(rollout_id, None)
    return parsed


def _of_traces(rows: pa.Table, traces: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows["trace_id"], value_set=traces)) if len(rows) else rows


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join tables up to about `TEXT_AT_ONCE` bytes: each insert has a cost of its own."""
    some: list[pa.Table] = []
    size = 0
    for table in tables:
        if not len(table):
            continue
        some.append(table)
        size += table.nbytes
        if size > to_arrow.TEXT_AT_ONCE:
            yield pa.concat_tables(some)
            some, size = [], 0
    if some:
        yield pa.concat_tables(some)
