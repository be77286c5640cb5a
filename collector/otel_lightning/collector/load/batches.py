"""Store a batch of requests in one transaction: `spans`, `logs`, `rejected` and `stale`.

This module has no threads: `loader.py` decides when to store, and how much.
"""

import json
import logging
import os
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import accumulate, takewhile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from otel_lightning.collector.files.atomic import PRIVATE, make_private, sync
from otel_lightning.collector.load.decoding.attribute_limits import NO_LIMITS, Limits
from otel_lightning.collector.load.decoding.decode import decode
from otel_lightning.collector.load.position import spool_position
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Store, statement
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds
from otel_lightning.collector.store.times_as_text import all_times_as_text

logger = logging.getLogger(__name__)
DECODE_BYTES = 4 * 1024 * 1024  # decoded together; so few that the allocator reuses the memory
DAMAGED = "a part of the spool was damaged on disk; what is left of it is in this file"
REPEATED = (
    "repeated ids: span {span_id} of trace {trace_id} ('{name}', {start_time}) has the ids of"
    " another span, and is not stored. Let the sender draw random ids."
)
TABLES: dict[Signal, str] = {"traces": "spans", "logs": "logs"}


class Request(NamedTuple):
    """One decompressed OTLP request, its signal and its time of receipt in Unix nanoseconds."""

    signal: Signal
    received_ns: int
    body: bytes
    damaged: Path | None = None
    """For damaged bytes of the spool, which are no request: the file with a copy of them."""


class _Loading(NamedTuple):
    store: Store
    known: SeenIds
    limits: Limits
    dead_letters: Path
    derives: bool
    repeated: list[int]
    """Numbers of spans that are not stored because other spans have their ids."""


def load(  # noqa: PLR0913  what to store, where to, and how far
    store: Store,
    requests: Iterable[Request],
    known: SeenIds | None = None,
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
        known: Ids in the store, to recognise duplicates. A caller that loads repeatedly should
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
    known = known or SeenIds(store)
    with store.transaction():
        loading = _Loading(store, known, limits, dead_letters, derives, [])
        new = sum(_store(loading, signal, some) for signal, some in by_signal.items())
        for file in damaged:
            _reject(store, "spool", DAMAGED, file=str(file))
        if end:
            store.execute(_keep_position(end))
    known.repeated += sum(loading.repeated)  # not before: an undone batch comes again
    return new


def resume(store: Store, spool: Spool) -> Position:
    """Return the spool position at which to continue, and store the id of this spool.

    The stored position is used if it belongs to this spool. If not, the store was restored without
    its spool, or the spool was deleted. Then the whole spool is read; rows that are stored already
    are recognised as duplicates by their ids.
    """
    rows = store.column("SELECT spool_id FROM spool_identity")
    position = spool_position(store)
    is_same = rows in ([], [spool.id])  # release 0.1.0 stored no spool id
    if not is_same or position > spool.end:
        logger.warning("This store was fed from another spool: all of '%s' is read.", spool.folder)
        position = spool.start
    with store.transaction():
        store.execute(statement(__package__, "keep_spool_identity", spool_id=spool.id))
        store.execute(_keep_position(position))
    return position


def move_to(store: Store, position: Position) -> None:
    """Store a later position of the spool, up to which nothing is left to store."""
    with store.transaction():
        store.execute(_keep_position(position))


def _keep_position(position: Position) -> str:
    return statement(
        __package__, "keep_spool_position", segment=position.segment, byte_offset=position.offset
    )


def _store(loading: _Loading, signal: Signal, requests: list[Request]) -> int:
    new = 0
    while requests:
        count = _portion(requests)
        some, requests[:count] = requests[:count], []
        new += _store_together(loading, signal, some)
    return new


def _portion(requests: Sequence[Request]) -> int:
    """Return the number of requests to decode together: up to `DECODE_BYTES`, at least one."""
    sizes = accumulate(len(request.body) for request in requests)
    return max(sum(1 for _ in takewhile(DECODE_BYTES.__ge__, sizes)), 1)


def _store_together(loading: _Loading, signal: Signal, requests: Sequence[Request]) -> int:
    bodies, received_ns = [r.body for r in requests], [r.received_ns for r in requests]
    try:
        rows, rejected = decode(signal, bodies, received_ns, loading.limits)
    except (ValueError, pa.ArrowException) as error:
        if len(requests) == 1:
            _set_aside(loading, requests[0], str(error))
            return 0
        half = len(requests) // 2  # bisect to find the bad request and store the others
        parts = requests[:half], requests[half:]
        return sum(_store_together(loading, signal, part) for part in parts)
    for reason in rejected:
        _reject(loading.store, signal, reason, file="")
    return _insert(loading, TABLES[signal], rows, received_ns)


def _insert(loading: _Loading, table: str, rows: pa.Table, received_ns: Sequence[int]) -> int:
    store, new = loading.store, loading.known.unknown(table, rows)
    store.insert(table, new)
    trace_ids = new["trace_id"].drop_null()
    if table == "spans" and len(new) < len(rows):
        replaced = _settle_differing(loading, rows, received_ns)
        trace_ids = pa.chunked_array([*trace_ids.chunks, *replaced.chunks], trace_ids.type)
    since = min(received_ns) if loading.derives else None
    traces = _stale("trace", trace_ids, since)
    store.insert("stale", traces)
    are_new = loading.known.new_traces(traces["id"])
    if since is not None:
        places = recent_traces(store)
        places.arrived(traces["id"].to_pylist(), are_new.to_pylist(), since)
    if table == "logs":
        # A log record without a trace is derived by itself, so it is marked by its own id.
        loose = new.filter(new["trace_id"].is_null())
        store.insert("stale", _stale("log", loose["log_id"], since))
    return len(new)


def _settle_differing(
    loading: _Loading, rows: pa.Table, received_ns: Sequence[int]
) -> pa.ChunkedArray:
    """Replace spans of which later states came; report other spans with the ids of stored ones.

    Returns:
        The trace ids of the spans that were replaced.
    """
    later, other = loading.known.differing(rows)
    if len(later):
        loading.known.replace(later)
    if len(other):
        _note_repeated_ids(loading, other, received_ns)
    return later["trace_id"]


def _note_repeated_ids(loading: _Loading, others: pa.Table, received_ns: Sequence[int]) -> None:
    """Report the spans that are not stored because another span has their ids; keep a copy.

    The copy is a file in the folder for dead letters; the table `rejected` names it.
    """
    loading.repeated.append(len(others))
    spans = all_times_as_text(others).to_pylist(maps_as_pydicts="lossy")
    lines = "".join(f"{json.dumps(span, default=str)}\n" for span in spans).encode()
    file = _kept(loading, min(received_ns), lines, "repeated-ids.jsonl")
    now = pa.scalar(time.time_ns(), pa.int64()).cast(pa.timestamp("ns"))
    told = [REPEATED.format(**span) for span in spans]
    kept = {"received_at": pa.repeat(now, len(told)), "signal": pa.repeat("traces", len(told))}
    loading.store.insert(
        "rejected", pa.table({**kept, "reason": told, "file": pa.repeat(str(file), len(told))})
    )


def _stale(kind: str, ids: pa.ChunkedArray, since_ns: int | None) -> pa.Table:
    distinct = ids.unique()
    since = pa.repeat(pa.scalar(since_ns, pa.int64()), len(distinct)).cast(pa.timestamp("ns"))
    columns = {"kind": pa.repeat(kind, len(distinct)), "id": distinct.cast(pa.string())}
    return pa.table(columns | {"received_at": since})


def _set_aside(loading: _Loading, request: Request, reason: str) -> None:
    """Keep the body of a request that cannot be decoded as a file, named in `rejected`."""
    file = _kept(loading, request.received_ns, request.body, f"{request.signal}.pb")
    _reject(loading.store, request.signal, f"cannot be decoded: {reason}", file=str(file))


def _kept(loading: _Loading, received_ns: int, content: bytes, kind: str) -> Path:
    """Write a dead letter and wait until the disk has it: it will be the only copy of the content.

    The hash in its name keeps apart what came at the same time, as all requests of one file do. A
    batch that is stored again, because its transaction was undone, writes the same file again.
    """
    file = loading.dead_letters / f"{received_ns}.{sha256(content).hexdigest()[:12]}.{kind}"
    make_private(file.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(file, flags, PRIVATE), "wb") as letter:
        letter.write(content)
    sync(file)
    sync(file.parent)
    return file


def _reject(store: Store, signal: str, reason: str, *, file: str) -> None:
    row = {
        "received_at": pa.array([time.time_ns()], pa.int64()).cast(pa.timestamp("ns")),
        "signal": [signal],
        "reason": [reason],
        "file": [file or None],
    }
    store.insert("rejected", pa.table(row))
