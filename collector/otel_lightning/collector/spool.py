"""The durable log between receiving and storing: what is in it survives a crash.

Requests wait in a queue; one thread writes all that wait with one write, makes them durable with
one `fdatasync`, and then answers them all. The loader reads behind. Segments that it has stored are
deleted. While more waits than the loader stores in half a second, the thread pauses after each
write, so that requests come no faster than they are stored.

A record is a little-endian header (length of the body, crc32 of what follows, when it came in Unix
nanoseconds, the signal's number, how many rows it makes) and the request's protobuf body,
decompressed.
"""

import os
import queue
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.otlp.fields import Signal

CHECK, CHECKED = struct.Struct("<QI"), struct.Struct("<QBI")
HEADER = struct.Struct(CHECK.format + CHECKED.format.removeprefix("<"))
SIGNALS: tuple[Signal, ...] = ("traces", "logs")
SEGMENT_BYTES = 256 * 1024 * 1024
BACKLOG_BYTES = 4 * 1024 * 1024 * 1024
BATCH = 256
BEHIND_SECONDS = 0.75  # of storing may wait, as much as fills row groups; then senders wait too
LONGEST_PAUSE_SECONDS = 1.0


class SpoolError(Exception):
    """The spool takes nothing at present; the sender should try again."""


class Position(NamedTuple):
    """A place in the spool: a segment's number and a byte offset in it."""

    segment: int
    offset: int


class Record(NamedTuple):
    """One request, and where in the spool the next one begins."""

    signal: Signal
    received_ns: int
    rows: int
    body: bytes
    end: Position


class _Waiting(NamedTuple):
    signal: Signal
    body: bytes
    rows: int
    done: Future[None]


class Spool:
    """An append-only log of requests in a folder, one writer and one reader."""

    def __init__(self, folder: Path, *, backlog_bytes: int = BACKLOG_BYTES) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.backlog_bytes = backlog_bytes
        self.arrived = threading.Event()
        self.stored_per_second: float | None = None
        """How many bytes the loader stores a second, as far as known."""
        self._closing = threading.Event()
        self._failed: str | None = None
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._start()
        self._writer = threading.Thread(target=self._write, name="spool")
        self._writer.start()

    def append(self, signal: Signal, body: bytes, rows: int = 0) -> Future[None]:
        """Queue a request; the future is done once it is durable.

        Args:
            signal: Of which kind it is.
            body: Its protobuf bytes.
            rows: How many spans or log records it has, as far as known.

        Raises:
            SpoolError: If an earlier write failed, or more than `backlog_bytes` wait to be loaded.
        """
        if self._failed:
            raise SpoolError(self._failed)
        if self.backlog() > self.backlog_bytes:
            raise SpoolError("the spool is full: the loader is behind")
        done: Future[None] = Future()
        self._queue.put(_Waiting(signal, body, rows, done))
        return done

    def read(self, start: Position, limit: int) -> list[Record]:
        """Read the durable records from a position on, up to about `limit` bytes."""
        records: list[Record] = []
        size = 0
        for segment in (n for n in _segments(self.folder) if n >= start.segment):
            durable = self._durable.offset if segment == self._durable.segment else None
            offset = start.offset if segment == start.segment else 0
            for record in scan(self.folder, Position(segment, offset), durable):
                records.append(record)
                size += len(record.body)
                if size >= limit:
                    return records
            if segment == self._durable.segment:
                break
        return records

    def forget(self, loaded: Position) -> None:
        """Delete the segments that are stored up to `loaded`."""
        self._loaded = loaded
        for segment in _segments(self.folder):
            if segment < loaded.segment:
                _path(self.folder, segment).unlink()

    def backlog(self) -> int:
        """How many durable bytes the loader has not stored yet."""
        with suppress(FileNotFoundError):
            return backlog(self.folder, self._loaded)
        return 0

    def close(self) -> None:
        """Make what waits durable, then stop writing."""
        self._closing.set()
        self._queue.put(None)
        self._writer.join()
        os.close(self._file)

    def _start(self) -> None:
        segments = _segments(self.folder)
        first = segments[0] if segments else 1
        last = segments[-1] if segments else 1
        end = _end_of_records(self.folder, last)
        self._file = os.open(_path(self.folder, last), os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, end)  # a torn tail was never acknowledged
        os.lseek(self._file, end, os.SEEK_SET)
        _sync_folder(self.folder)
        self._durable = Position(last, end)
        self._loaded = Position(first, 0)

    def _write(self) -> None:
        while True:
            batch, stop = self._wait()
            if batch:
                self._write_batch(batch)
                self._pause(sum(len(item.body) for item in batch))
            if stop:
                return

    def _wait(self) -> tuple[list[_Waiting], bool]:
        batch: list[_Waiting] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == BATCH:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _write_batch(self, batch: list[_Waiting]) -> None:
        try:
            if self._failed:
                raise SpoolError(self._failed)  # noqa: TRY301  the one place that answers a failure
            parts = [part for item in batch for part in _encode(item)]
            self._append(parts)
        except (OSError, SpoolError) as error:
            self._recover(error)
            for item in batch:
                if item.done.set_running_or_notify_cancel():  # its sender may have gone
                    item.done.set_exception(SpoolError(str(error)))
            return
        for item in batch:
            if item.done.set_running_or_notify_cancel():
                item.done.set_result(None)
        self.arrived.set()

    def _pause(self, size: int) -> None:
        """Take no more than is stored, once much waits: what is acknowledged is soon seen.

        Whoever waits for an answer meanwhile is written with the next batch.
        """
        rate = self.stored_per_second
        if rate and self.backlog() > rate * BEHIND_SECONDS:
            self._closing.wait(min(size / rate, LONGEST_PAUSE_SECONDS))

    def _append(self, parts: list[bytes]) -> None:
        if self._durable.offset >= SEGMENT_BYTES:
            self._rotate()
        size = _write_all(self._file, parts)
        try:
            os.fdatasync(self._file)
        except OSError as error:
            # The kernel may have dropped the pages: what is on disk is unknown from here on.
            self._failed = (
                f"the spool could not be made durable ({error}); restart lightning-ingest"
            )
            raise
        self._durable = Position(self._durable.segment, self._durable.offset + size)

    def _rotate(self) -> None:
        segment = self._durable.segment + 1
        file = os.open(_path(self.folder, segment), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _sync_folder(self.folder)
        os.close(self._file)
        self._file, self._durable = file, Position(segment, 0)

    def _recover(self, error: Exception) -> None:
        """Cut off a write that failed half-way (a full disk), so that the next one is readable."""
        if isinstance(error, OSError) and not self._failed:
            try:
                os.ftruncate(self._file, self._durable.offset)
                os.lseek(self._file, self._durable.offset, os.SEEK_SET)
            except OSError as second:
                self._failed = f"the spool cannot be written ({second}); restart lightning-ingest"


def scan(folder: Path, start: Position, end: int | None = None) -> Iterator[Record]:
    """Read the whole, undamaged records of one segment from a position on."""
    path = _path(folder, start.segment)
    with path.open("rb") as file:
        file.seek(start.offset)
        offset = start.offset
        size = path.stat().st_size if end is None else end
        while offset + HEADER.size <= size:
            length, checksum, *told = HEADER.unpack(file.read(HEADER.size))
            if offset + HEADER.size + length > size:
                return
            body = file.read(length)
            if _checksum(CHECKED.pack(*told), body) != checksum:
                return
            offset += HEADER.size + length
            received_ns, signal, rows = told
            yield Record(SIGNALS[signal], received_ns, rows, body, Position(start.segment, offset))


def spool_folder(store_path: Path) -> Path:
    """Where the spool of a store lies: beside it."""
    return store_path.with_name(store_path.name + ".spool")


def backlog(folder: Path, loaded: Position) -> int:
    """How many bytes of a spool lie behind a position."""
    sizes = {n: _path(folder, n).stat().st_size for n in _segments(folder) if n >= loaded.segment}
    return sum(sizes.values()) - (loaded.offset if loaded.segment in sizes else 0)


def damaged(folder: Path, loaded: Position, *, writing: bool) -> int:
    """How many bytes behind a position cannot be read.

    Args:
        folder: The spool.
        loaded: What lies before it was stored.
        writing: Whether a process appends: then the last segment may end in half a record.
    """
    segments = [n for n in _segments(folder) if n >= loaded.segment]
    return sum(
        _path(folder, n).stat().st_size - _end_of_records(folder, n)
        for n in (segments[:-1] if writing else segments)
    )


def _encode(item: _Waiting) -> tuple[bytes, bytes]:
    told = CHECKED.pack(time.time_ns(), SIGNALS.index(item.signal), item.rows)
    return CHECK.pack(len(item.body), _checksum(told, item.body)) + told, item.body


def _checksum(told: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(told))


def _end_of_records(folder: Path, segment: int) -> int:
    end = 0
    if _path(folder, segment).exists():
        for record in scan(folder, Position(segment, 0)):
            end = record.end.offset
    return end


def _segments(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.spool"))


def _path(folder: Path, segment: int) -> Path:
    return folder / f"{segment:010d}.spool"


def _write_all(file: int, parts: list[bytes]) -> int:
    data = memoryview(b"".join(parts))
    rest = data
    while rest:
        rest = rest[os.write(file, rest) :]
    return len(data)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
