"""From the spool into the store: each span once, however often it was sent.

The rows and the position up to which the spool was read are one transaction, so a crash at any
moment neither loses nor repeats a row. Large transactions are cheaper: under load the loader waits
for more, up to half a second.
"""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from otel_lightning.collector.decode import decode
from otel_lightning.collector.refresh import refresh
from otel_lightning.collector.spool import Position, Record, Spool, backlog, spool_folder
from otel_lightning.collector.store import Store, StoreError
from otel_lightning.collector.wire import Signal

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.5
BATCH_BYTES = 64 * 1024 * 1024
RETRY_SECONDS = 1.0

# Only what the store does not have yet, and of several copies in this batch one.
NEW_SPANS = """
    SELECT * FROM {batch} b
    WHERE NOT EXISTS (FROM spans s WHERE s.trace_id = b.trace_id AND s.span_id = b.span_id)
    QUALIFY row_number() OVER (PARTITION BY trace_id, span_id ORDER BY received_at) = 1
"""
NEW_LOGS = """
    SELECT * FROM {batch} b
    WHERE NOT EXISTS (FROM logs l WHERE l.log_id = b.log_id)
    QUALIFY row_number() OVER (PARTITION BY log_id ORDER BY received_at) = 1
"""


class Request(NamedTuple):
    """One decompressed OTLP request of a signal, and when it came."""

    signal: Signal
    received_ns: int
    body: bytes


class Loader(threading.Thread):
    """Tails the spool, stores what is durable, and keeps the derived tables current."""

    def __init__(self, store: Store, spool: Spool) -> None:
        super().__init__(name="loader")
        self._store, self._spool = store, spool
        self._stopping = threading.Event()
        self.position = spool_position(store)

    def run(self) -> None:
        """Load until told to stop, then drain what is left."""
        while not self._stopping.is_set():
            self._spool.arrived.wait(timeout=INTERVAL_SECONDS)
            self._spool.arrived.clear()
            self._attempt()
            self._stopping.wait(INTERVAL_SECONDS)
        self._attempt()

    def stop(self) -> None:
        """Load what is durable, bring the derived tables up to date, and end."""
        self._stopping.set()
        self._spool.arrived.set()
        self.join()

    def _attempt(self) -> None:
        try:
            while self._load_some() or refresh(self._store):
                pass
        except StoreError:
            logger.exception("The store takes nothing; received data stays on the spool")
            time.sleep(RETRY_SECONDS)

    def _load_some(self) -> bool:
        records = self._spool.read(self.position, BATCH_BYTES)
        if not records:
            return False
        end = records[-1].end
        load(self._store, map(_request, records), end=end, dead_letters=self._spool.folder / "dead")
        self.position = end
        self._spool.forget(end)
        return True


def load(
    store: Store, requests: Iterable[Request], *, end: Position | None = None, dead_letters: Path
) -> int:
    """Store requests in one transaction and mark what they touch as stale.

    Args:
        store: A direct store.
        requests: What to store.
        end: The spool position behind them, written in the same transaction.
        dead_letters: Folder for bodies that cannot be decoded.

    Returns:
        How many spans and log records were new.
    """
    by_signal: dict[Signal, list[Request]] = {"traces": [], "logs": []}
    for request in requests:
        by_signal[request.signal].append(request)
    with store.transaction():
        new = sum(_store(store, signal, some, dead_letters) for signal, some in by_signal.items())
        if end:
            store.execute(
                "DELETE FROM spool_position;"
                f"INSERT INTO spool_position VALUES ({end.segment}, {end.offset})"
            )
    return new


def spool_position(store: Store) -> Position:
    """Up to where the spool was stored."""
    rows = store.query("SELECT segment, byte_offset FROM spool_position").to_pylist()
    return Position(rows[0]["segment"], rows[0]["byte_offset"]) if rows else Position(1, 0)


def waiting(store: Store, path: Path) -> int:
    """How many bytes lie on the spool of the store at `path` that are not stored yet."""
    return backlog(spool_folder(path), spool_position(store))


def _request(record: Record) -> Request:
    return Request(record.signal, record.received_ns, record.body)


def _store(store: Store, signal: Signal, requests: Sequence[Request], dead_letters: Path) -> int:
    if not requests:
        return 0
    try:
        rows, rejected = decode(
            signal, [r.body for r in requests], [r.received_ns for r in requests]
        )
    except (ValueError, pa.ArrowException) as error:
        if len(requests) == 1:
            _set_aside(store, requests[0], str(error), dead_letters)
            return 0
        half = len(requests) // 2  # find the one that breaks the others
        parts = (requests[:half], requests[half:])
        return sum(_store(store, signal, part, dead_letters) for part in parts)
    for reason in rejected:
        _reject(store, signal, reason, file="")
    return _insert_spans(store, rows) if signal == "traces" else _insert_logs(store, rows)


def _insert_spans(store: Store, rows: pa.Table) -> int:
    new = store.insert_new("spans", rows, NEW_SPANS)
    store.insert("stale", _stale("trace", new["trace_id"]))
    return len(new)


def _insert_logs(store: Store, rows: pa.Table) -> int:
    new = store.insert_new("logs", rows, NEW_LOGS)
    loose = new.filter(new["trace_id"].is_null())
    store.insert("stale", _stale("trace", new["trace_id"].drop_null()))
    store.insert("stale", _stale("log", loose["log_id"]))
    return len(new)


def _stale(kind: str, ids: pa.ChunkedArray) -> pa.Table:
    distinct = ids.unique()
    return pa.table({"kind": pa.repeat(kind, len(distinct)), "id": distinct.cast(pa.string())})


def _set_aside(store: Store, request: Request, reason: str, dead_letters: Path) -> None:
    dead_letters.mkdir(exist_ok=True)
    file = dead_letters / f"{request.received_ns}.{request.signal}.pb"
    file.write_bytes(request.body)
    _reject(store, request.signal, f"cannot be decoded: {reason}", file=str(file))


def _reject(store: Store, signal: str, reason: str, *, file: str) -> None:
    row = {
        "received_at": pa.array([time.time_ns()], pa.int64()).cast(pa.timestamp("ns")),
        "signal": [signal],
        "reason": [reason],
        "file": [file or None],
    }
    store.insert("rejected", pa.table(row))
