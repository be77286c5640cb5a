"""Store a batch of requests in one transaction: `spans`, `logs`, `rejected` and `stale`.

This module has no threads: `loader.py` decides when to store, and how much.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from otel_lightning.collector.load.dead_letters import DeadLetters
from otel_lightning.collector.load.decoding.attribute_limits import NO_LIMITS, Limits
from otel_lightning.collector.load.decoding.decode import decode
from otel_lightning.collector.load.resume import keep_position
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.store import Store
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

DECODE_BYTES = 4 * 1024 * 1024  # decoded together; few enough that the allocator reuses the memory
TABLES: dict[Signal, str] = {"traces": "spans", "logs": "logs"}


class Request(NamedTuple):
    """One decompressed OTLP request, its signal and its time of receipt in Unix nanoseconds."""

    signal: Signal
    received_ns: int
    body: bytes
    damaged: Path | None = None
    """For damaged bytes of the spool, which are no request: the file with a copy of them."""


def load(  # noqa: PLR0913  what to store, where to, and how far
    store: Store,
    requests: Iterable[Request],
    seen_ids: SeenIds | None = None,
    *,
    limits: Limits = NO_LIMITS,
    end: Position | None = None,
    dead_letters: Path,
    derives: bool = True,
) -> int:
    """Store requests in one transaction and mark their traces as stale.

    Args:
        store: A direct store.
        requests: The requests, in the order of receipt.
        seen_ids: Ids in the store, to recognise duplicates. A caller that loads repeatedly should
            pass the same object each time, because to build it takes time.
        limits: Limits on stored attributes.
        end: The spool position after the requests, written in the same transaction.
        dead_letters: Folder for bodies that cannot be decoded.
        derives: Whether the caller derives the stored rows. If so, the time of receipt is stored
            with each stale trace, to measure the lag.

    Returns:
        Number of new spans and log records, without duplicates.
    """
    by_signal: dict[Signal, list[Request]] = {"traces": [], "logs": []}
    damaged: list[Path] = []
    for request in requests:
        if request.damaged:
            damaged.append(request.damaged)
        else:
            by_signal[request.signal].append(request)
    seen_ids = seen_ids or SeenIds(store)
    with store.transaction():
        letters = DeadLetters(store, dead_letters)
        batch = _Batch(store, seen_ids, limits, letters, derives=derives)
        new = sum(batch.store(signal, some) for signal, some in by_signal.items())
        for file in damaged:
            letters.add_damage(file)
        if end:
            store.execute(keep_position(end))
    seen_ids.repeated += batch.repeated  # not before: an undone batch comes again
    return new


class _Batch:
    """The storing of one batch of requests, in the caller's transaction."""

    def __init__(
        self,
        store: Store,
        seen_ids: SeenIds,
        limits: Limits,
        letters: DeadLetters,
        *,
        derives: bool,
    ) -> None:
        self._store, self._seen_ids, self._limits = store, seen_ids, limits
        self._letters, self._derives = letters, derives
        self.repeated = 0
        """Number of spans that are not stored because other spans have their ids."""

    def store(self, signal: Signal, requests: list[Request]) -> int:
        """Store requests of one signal, and empty the list; return the number of new rows."""
        new = 0
        while requests:
            count = _portion(requests)
            some, requests[:count] = requests[:count], []
            new += self._store_together(signal, some)
        return new

    def _store_together(self, signal: Signal, requests: Sequence[Request]) -> int:
        bodies, received_ns = [r.body for r in requests], [r.received_ns for r in requests]
        try:
            rows, rejected = decode(signal, bodies, received_ns, self._limits)
        except (ValueError, pa.ArrowException) as error:
            if len(requests) == 1:
                self._letters.add_request(signal, bodies[0], received_ns[0], str(error))
                return 0
            half = len(requests) // 2  # bisect to find the bad request and store the others
            parts = requests[:half], requests[half:]
            return sum(self._store_together(signal, part) for part in parts)
        self._letters.add_records(signal, rejected)
        return self._insert(TABLES[signal], rows, min(received_ns))

    def _insert(self, table: str, rows: pa.Table, received_ns: int) -> int:
        """Insert the rows that are not stored yet, and mark their traces as stale.

        Args:
            table: `spans` or `logs`.
            rows: The rows.
            received_ns: None of them was received before this, Unix nanoseconds.

        Returns:
            Number of inserted rows.
        """
        recent = recent_traces(self._store)
        new = self._seen_ids.unknown(table, rows, recent.received_since)
        self._store.insert(table, new)
        trace_ids = new["trace_id"].drop_null()
        if table == "spans" and len(new) < len(rows):
            replaced = self._settle_differing(rows, received_ns)
            trace_ids = pa.chunked_array([*trace_ids.chunks, *replaced.chunks], trace_ids.type)
        # Without deriving a trace has no time of receipt: its lag is not measured.
        since_ns = received_ns if self._derives else None
        traces = _stale("trace", trace_ids, since_ns)
        self._store.insert("stale", traces)
        are_new = self._seen_ids.new_traces(traces["id"])
        if since_ns is not None:
            recent.arrived(traces["id"].to_pylist(), are_new.to_pylist(), since_ns)
        if table == "logs":
            # A log record without a trace is derived by itself, so it is marked by its own id.
            without_trace = new.filter(new["trace_id"].is_null())
            self._store.insert("stale", _stale("log", without_trace["log_id"], since_ns))
        return len(new)

    def _settle_differing(self, rows: pa.Table, received_ns: int) -> pa.ChunkedArray:
        """Replace spans that were sent again in a later state; keep other spans with stored ids.

        Returns:
            The trace ids of the spans that were replaced.
        """
        later, other = self._seen_ids.differing(rows)
        if len(later):
            self._seen_ids.replace(later)
        if len(other):
            self.repeated += len(other)
            self._letters.add_repeated_ids(other, received_ns)
        return later["trace_id"]


def _portion(requests: Sequence[Request]) -> int:
    """Return the number of requests to decode together: up to `DECODE_BYTES`, at least one."""
    sizes = accumulate(len(request.body) for request in requests)
    return max(sum(1 for _ in takewhile(DECODE_BYTES.__ge__, sizes)), 1)


def _stale(kind: str, ids: pa.ChunkedArray, since_ns: int | None) -> pa.Table:
    distinct = ids.unique()
    since = pa.repeat(pa.scalar(since_ns, pa.int64()), len(distinct)).cast(pa.timestamp("ns"))
    columns = {"kind": pa.repeat(kind, len(distinct)), "id": distinct.cast(pa.string())}
    return pa.table(columns | {"received_at": since})
