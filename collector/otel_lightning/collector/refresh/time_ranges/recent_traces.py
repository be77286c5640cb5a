"""From which time on the rows of recent traces are, in each table.

A trace id is random, so a search for it reads the ids of a whole table, and costs more the larger
the store is. Times are not: DuckDB skips blocks of rows that are all older than a condition asks
for. So this process remembers, for the traces that came or were derived last, since when their
spans were received, and the earliest time among the rows that were derived from them. Reading or
deleting their rows then costs the same in a store of any size. For the two million traces before
these it remembers the same in a shorter form (`older_traces.py`), also across an orderly stop. For
any other trace whole tables are searched.

It is valid only while this process is the only one that stores and derives, as `SeenIds` is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import filterfalse, islice

from otel_lightning.collector.refresh.time_ranges.key_ranges import KeyRanges
from otel_lightning.collector.refresh.time_ranges.older_traces import OlderTraces
from otel_lightning.collector.refresh.time_ranges.time_bounds import (
    TIMES,
    EarliestTimes,
    TimeBounds,
    merged,
)
from otel_lightning.collector.store import Sql, Store

MOST_TRACES = 100_000
"""Number of traces that are remembered as a whole; each takes some 300 bytes."""
SPARE = 1 << 14
"""Number of traces above `MOST_TRACES` at which this many become older traces, at once."""
EVERYWHERE = Sql("TRUE")
"""The condition that searches a whole table."""
NOWHERE = Sql("FALSE")
"""The condition of a table that has no rows of these traces."""
UNKNOWN = TimeBounds(0, {}, 0)
"""The bounds of a trace whose spans and keys may be of any time."""


class RecentTraces:
    """The time bounds of the traces that were received or derived last."""

    def __init__(self, most: int = MOST_TRACES, spare: int = SPARE) -> None:
        self._bounds: dict[str, TimeBounds] = {}
        self._most, self._spare = most, spare
        self.older = OlderTraces()
        """The traces that were in `_bounds` before."""
        self.keys = KeyRanges()
        """The times between which the keys of all traces were written."""
        self._replaced: set[str] | None = None

    def arrived(self, trace_ids: Iterable[str], are_new: Iterable[bool], received_ns: int) -> None:
        """Record that spans or log records came.

        Args:
            trace_ids: Ids of their traces.
            are_new: For each, whether nothing of the trace was stored before.
            received_ns: None of them was received before this, Unix nanoseconds.
        """
        arrived = dict(zip(trace_ids, are_new, strict=True))
        self._recall([trace_id for trace_id, is_new in arrived.items() if not is_new])
        for trace_id, is_new in arrived.items():
            if bounds := self._bounds.get(trace_id):
                late_ns = (
                    received_ns if bounds.late_ns is None else min(received_ns, bounds.late_ns)
                )
                first_ns = min(received_ns, bounds.received_ns)
                self._bounds[trace_id] = bounds._replace(received_ns=first_ns, late_ns=late_ns)
            elif is_new:
                self._bounds[trace_id] = TimeBounds(received_ns, {}, late_ns=received_ns)
        self._shorten()

    def wrote_keys(self, trace_ids: Iterable[str], now_ns: int) -> None:
        """Record that keys of traces were written; their former keys are deleted."""
        for trace_id in self.remembered(trace_ids):
            self._bounds[trace_id] = self._bounds[trace_id]._replace(keys_ns=now_ns)

    def derived(
        self,
        trace_ids: Iterable[str],
        unchanged: Iterable[str],
        earliest: EarliestTimes,
        in_part: Iterable[str] = (),
    ) -> None:
        """Record that the derived rows of traces were replaced.

        Args:
            trace_ids: Traces whose former rows were all deleted.
            unchanged: Traces of the same batch whose rows stayed, except for those of rollouts.
            earliest: The earliest times of the new rows of the batch.
            in_part: Traces of which some rows were replaced.
        """
        traces, some, noted = list(trace_ids), list(in_part), self._replaced
        if noted is not None:
            noted.update(traces, some)
        self._recall([*traces, *unchanged, *some])
        for trace_id in traces:
            # Last, so forgotten last. Of an unknown trace only the bounds of these rows are known.
            previous = self._bounds.pop(trace_id, UNKNOWN)
            self._bounds[trace_id] = previous._replace(derived=earliest, late_ns=None)
        # The traces of one earlier batch share one mapping. They share the merged one, too, which
        # is found by the `id()` of the former one. That is kept, so no other one gets its `id()`.
        shared: dict[int, tuple[EarliestTimes, EarliestTimes]] = {}
        for trace_id in (*unchanged, *some):
            if bounds := self._bounds.get(trace_id):
                former = bounds.derived
                if id(former) not in shared:
                    shared[id(former)] = former, merged(former, earliest)
                _, both = shared[id(former)]
                self._bounds[trace_id] = bounds._replace(derived=both, late_ns=None)
        self._shorten()

    @contextmanager
    def noting_replaced(self) -> Iterator[None]:
        """Record for the block the traces whose derived rows are replaced, for `take_replaced`."""
        self._replaced = set()
        try:
            yield
        finally:
            self._replaced = None

    def take_replaced(self) -> set[str]:
        """Return the traces that were noted since the last call."""
        replaced, self._replaced = self._replaced or set(), set()
        return replaced

    def remembered(self, trace_ids: Iterable[str]) -> list[str]:
        """Return those of these traces whose time bounds are known."""
        trace_ids = list(trace_ids)
        self._recall(trace_ids)
        return [trace_id for trace_id in trace_ids if trace_id in self._bounds]

    def received_since(self, trace_ids: Iterable[str]) -> Sql:
        """Return a condition that all spans and log records of these traces meet."""
        bounds = self._all(trace_ids)
        if bounds is None:
            return EVERYWHERE
        return _since("received_at", min((one.received_ns for one in bounds), default=None))

    def late_since(self, trace_id: str) -> int | None:
        """Return since when spans and log records came after the trace was derived.

        Returns:
            Unix nanoseconds: all of them were received then or later. None if it is not known.
        """
        bounds = self._bounds.get(trace_id)
        return bounds.late_ns if bounds else None

    def keys_since(self, trace_ids: Iterable[str]) -> Sql:
        """Return a condition that all rows of these traces in `trace_keys` meet."""
        bounds = self._all(trace_ids)
        if bounds is None:
            return EVERYWHERE
        written = [one.keys_ns for one in bounds if one.keys_ns is not None]
        return _since("added_at", min(written)) if written else NOWHERE

    def rows_since(self, trace_ids: Iterable[str]) -> Mapping[str, Sql]:
        """Return for each derived table a condition that all rows of these traces meet."""
        bounds = self._all(trace_ids)
        if bounds is None:
            return dict.fromkeys(TIMES, EVERYWHERE)
        earliest: EarliestTimes = {}
        for one in {id(one.derived): one.derived for one in bounds}.values():
            earliest = merged(earliest, one)
        return {table: _rows_since(table, earliest) for table in TIMES}

    def clear(self) -> None:
        """Forget all traces and keys: whole tables are searched again."""
        self._bounds.clear()
        self.older.clear()
        self.keys.clear()

    def make_older(self, left: int = 0) -> None:
        """Move the recent traces to the older ones, except for the last `left`."""
        oldest = [*islice(self._bounds, max(len(self._bounds) - left, 0))]
        self.older.add({trace_id: self._bounds.pop(trace_id) for trace_id in oldest})

    def _all(self, trace_ids: Iterable[str]) -> list[TimeBounds] | None:
        trace_ids = list(trace_ids)
        self._recall(trace_ids)
        if not all(map(self._bounds.__contains__, trace_ids)):
            return None
        return [*map(self._bounds.__getitem__, trace_ids)]

    def _recall(self, trace_ids: Sequence[str]) -> None:
        """Take those of these traces that are older ones back among the recent ones."""
        # A log record may be without a trace.
        if missing := [*filter(None, filterfalse(self._bounds.__contains__, trace_ids))]:
            self._bounds |= self.older.find(missing)

    def _shorten(self) -> None:
        if len(self._bounds) > self._most + self._spare:
            self.make_older(self._most)


def recent_traces(store: Store) -> RecentTraces:
    """Return the recent traces of an open store; a transaction that is undone clears them."""
    return store.cache(RecentTraces)


def _rows_since(table: str, earliest: EarliestTimes) -> Sql:
    if table not in earliest:
        return NOWHERE
    column = TIMES[table]
    return EVERYWHERE if column is None else _since(column, earliest[table])


def _since(column: str, time_ns: int | None) -> Sql:
    # No bound, or 0 for one that is unknown: then rows without a time must be found too.
    return Sql(f'"{column}" >= make_timestamp_ns({time_ns})') if time_ns else EVERYWHERE
