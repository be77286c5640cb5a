"""The spool: a write-ahead log between receiving and storing. Its requests survive a crash.

Requests wait in a queue. One thread takes a batch from it, writes the batch with one write, makes
it durable with one sync, and then resolves the futures of its requests. The loader reads the
durable part, and deletes segments whose requests are stored.

Backpressure: if the loader lags, the thread pauses after each write, so that senders get answers no
faster than requests are stored and derived. `load/flow_control/pacing.py` says for how long.

`segments.py` has the files, and `format.py` the format of a segment.
"""

import queue
import threading
from concurrent.futures import Future, wait
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_lightning.collector.alarms import RECEIVING, Alarms
from otel_lightning.collector.files.atomic import locked
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.spool.disk_time import HANGS, DiskTime
from otel_lightning.collector.spool.faults import fault
from otel_lightning.collector.spool.format import Position, Record, encode
from otel_lightning.collector.spool.segments import Segments, SyncError
from otel_lightning.collector.spool.waiting import WaitingRequest, acknowledge, refuse

if TYPE_CHECKING:
    from otel_lightning.collector.spool.backpressure import Backpressure

BACKLOG_BYTES = 4 * 1024 * 1024 * 1024  # size above which requests are refused
BATCH = 256  # most requests in one write
LOOK_SECONDS = 2.0  # how often the file is checked while no request arrives
LEAST_PROBED_BYTES = 64 * 1024  # least that is written to find out whether writing works again


class SpoolError(Exception):
    """The spool accepts no requests at present; the sender should retry."""


class _Work(NamedTuple):
    """A batch that the writer thread takes from the queue, in the order of the work."""

    requests: list[WaitingRequest]
    segment_start: Future[Position] | None
    """The waiter for a new segment after them; it gets the segment's start."""
    stops: bool
    """Whether the thread ends after them."""


class Spool:
    """An append-only log of requests in a folder, with one writer thread and one reader."""

    def __init__(self, folder: Path, *, backlog_bytes: int = BACKLOG_BYTES) -> None:
        """Open a spool, or create it, and start its thread.

        Raises:
            OSError: If it cannot be read or written, or another process has it, with the remedy.
        """
        self.folder = folder
        self.backlog_bytes = backlog_bytes
        self.arrived = threading.Event()
        """Wakes the loader: set when requests are durable, or when other work waits for it."""
        self.backpressure: Backpressure | None = None
        """How senders are slowed; None accepts as fast as requests are written."""
        self.alarms = Alarms()
        """Has the alarm `receiving` while requests cannot be written."""
        self._closing = threading.Event()
        self.disk_time = DiskTime()
        self._failed: str | None = None  # why a sync failed, until one succeeds in a new segment
        self._refused_bytes = 0  # size of the largest request that could not be written
        self._queue: queue.SimpleQueue[WaitingRequest | Future[Position] | None] = (
            queue.SimpleQueue()
        )
        with ExitStack() as held:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(locked(folder, wait=False))
                self._segments = Segments(folder)
            except OSError as error:
                raise OSError(error.errno, fault(folder, error)) from error
            self._lock = held.pop_all()
        self._writer = threading.Thread(target=self._write, name="spool")
        self._writer.start()

    @property
    def id(self) -> str:
        """The id of this spool, which a store notes: see `identity`."""
        return self._segments.id

    def renew_id(self) -> None:
        """Give this spool another id, which no copy of it has.

        Raises:
            OSError: If it cannot be written; then the id stays.
        """
        self._segments.renew_id()

    def append(self, signal: Signal, body: bytes, rows: int = 0) -> Future[None]:
        """Queue a request; the future is resolved once the request is durable.

        Args:
            signal: Kind of the request.
            body: Its protobuf bytes.
            rows: Number of its spans or log records; 0 if unknown.

        Raises:
            SpoolError: If an earlier write failed, or the backlog exceeds `backlog_bytes`.
        """
        if reason := self.refusal():
            raise SpoolError(reason)
        durable: Future[None] = Future()
        self._queue.put(WaitingRequest(signal, body, rows, durable))
        return durable

    def begin_segment(self) -> Position:
        """Begin a new segment, and return its start. Requests acknowledged so far are before it.

        Raises:
            SpoolError: If it cannot be made.
        """
        start: Future[Position] = Future()
        self._queue.put(start)
        while not start.done() and self._writer.is_alive():
            wait([start], timeout=LOOK_SECONDS)
        if not start.done():
            raise SpoolError("the spool is closed")
        return start.result()

    def refusal(self) -> str | None:
        """Return why requests are refused at present; None if they are accepted."""
        if self._failed or self.disk_time.is_stalled:
            return self._failed or HANGS
        if self.backlog() > self.backlog_bytes:
            return "the spool is full: the loader is behind"
        return self.backpressure.refusal() if self.backpressure else None

    def read(self, start: Position, limit: int) -> list[Record]:
        """Read durable records from a position on, up to about `limit` bytes.

        Damaged bytes are copied to a file, and returned as a record that has its path and no body.
        """
        records: list[Record] = []
        size = 0
        for record in self._segments.read(start):
            records.append(record)
            size += len(record.body)
            if size >= limit:
                break
        return records

    def oldest_ns(self, start: Position) -> int | None:
        """Return when the first undamaged record after a position was received; None if none."""
        return self._segments.oldest_ns(start)

    def forget(self, loaded: Position) -> None:
        """Delete the segments before `loaded`, because their requests are stored."""
        self._segments.forget(loaded)

    def backlog(self) -> int:
        """Return the number of durable bytes that the loader has not stored yet."""
        return self._segments.backlog()

    @property
    def start(self) -> Position:
        """Position of the first record."""
        return self._segments.start

    @property
    def end(self) -> Position:
        """Position up to which records are durable."""
        return self._segments.end

    def is_alive(self) -> bool:
        """Return whether the writer thread runs, or was closed; if not, it has died."""
        return self._writer.is_alive() or self._closing.is_set()

    def close(self) -> None:
        """Make the queued requests durable, then stop the writer thread."""
        self._closing.set()
        self._queue.put(None)
        self._writer.join()
        self._segments.close()
        self._lock.close()

    def _write(self) -> None:
        while True:
            work = self._wait()
            if work.requests:
                self._write_batch(work.requests)
            if work.segment_start:
                self._begin_segment(work.segment_start)
            self._pause(sum(len(item.body) for item in work.requests))
            if work.stops:
                return

    def _begin_segment(self, start: Future[Position]) -> None:
        try:
            if self._failed:
                raise SpoolError(self._failed)  # noqa: TRY301  the one place that answers a failure
            self._segments.keep_in_place()
            self._segments.begin_segment()
        except (OSError, SpoolError) as error:
            start.set_exception(SpoolError(self._described(error)))
        else:
            start.set_result(self._segments.end)

    def _wait(self) -> _Work:
        """Wait for requests, and take those in the queue, up to `BATCH`."""
        batch: list[WaitingRequest] = []
        item = self._next()
        while isinstance(item, WaitingRequest):
            batch.append(item)
            if len(batch) == BATCH:
                return _Work(batch, None, stops=False)
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return _Work(batch, None, stops=False)
        return _Work(batch, item, stops=item is None)

    def _next(self) -> WaitingRequest | Future[Position] | None:
        """Wait for a request, and every `LOOK_SECONDS` check the file."""
        while True:
            try:
                return self._queue.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                self._check_file()

    def _check_file(self) -> None:
        """Check that the file can be written and, after a failed write, whether writing works.

        While requests are refused, or no longer sent here, nothing else would find out.
        """
        try:
            with self.disk_time.spent():
                self._segments.keep_in_place()
                # A file system that has become read-only refuses to open the file to write.
                self._segments.path.open("r+b").close()
                if self._failed:
                    self._begin_again()
                elif self.alarms.is_raised(RECEIVING):
                    self._probe()
        except OSError as error:
            self._recover(error)
        else:
            self._note_written(self._refused_bytes)

    def _probe(self) -> None:
        """Find out whether as much as was refused can be written: less may fit."""
        self._segments.probe(max(self._refused_bytes, LEAST_PROBED_BYTES))

    def _begin_again(self) -> None:
        """Go on after a failed sync, in a new segment, once the disk has synced something there.

        Acknowledged requests are in the segments before, which were synced.
        """
        self._segments.truncate()
        self._segments.begin_segment()
        self._probe()
        self._failed = None

    def _write_batch(self, batch: list[WaitingRequest]) -> None:
        largest = max(len(item.body) for item in batch)
        try:
            if self._failed:
                raise SpoolError(self._failed)  # noqa: TRY301  the one place that answers a failure
            parts = [part for i in batch for part in encode(i.signal, i.body, i.rows)]
            with self.disk_time.spent():
                self._segments.append(parts)
        except (OSError, SpoolError) as error:
            if isinstance(error, SyncError):
                self._failed = self._described(error)
            reason = self._recover(error)
            self._refused_bytes = max(self._refused_bytes, largest)
            refuse(batch, SpoolError(reason))
            return
        self._note_written(largest)
        acknowledge(batch)
        self.arrived.set()

    def _pause(self, size: int) -> None:
        """Pause after a batch of `size` bytes for as long as the loader's lag asks for.

        Requests that arrive during the pause are written with the next batch.
        """
        seconds = self.backpressure.pause(size) if self.backpressure else 0.0
        if seconds:
            self._closing.wait(seconds)

    def _recover(self, error: Exception) -> str:
        """Remove the bytes of a failed write, such as on a full disk, before the next write.

        Returns:
            Why the write failed.
        """
        if isinstance(error, OSError) and not self._failed:
            try:
                self._segments.truncate()
            except OSError as second:
                self._failed = self._described(second)
        reason = self._failed or self._described(error)
        self.alarms.raise_alarm(RECEIVING, reason)
        return reason

    def _described(self, error: Exception) -> str:
        if isinstance(error, OSError):
            return fault(self._segments.path, error)
        return str(error)

    def _note_written(self, size: int) -> None:
        """Clear the alarm, after this size was written, if all that was refused would fit.

        After a slow write it stays: senders have given up by then, and the next one may be as slow.
        """
        if not self._failed and not self.disk_time.was_slow and size >= self._refused_bytes:
            self._refused_bytes = 0
            self.alarms.clear(RECEIVING)
