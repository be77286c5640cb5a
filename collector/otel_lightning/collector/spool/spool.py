"""The spool: a write-ahead log between receiving and storing. Its requests survive a crash.

Requests wait in a queue. One thread takes a batch from it, writes the batch with one write, makes
it durable with one sync, and then resolves the futures of its requests. The loader reads the
durable part, and deletes segments whose requests are stored.

Backpressure: if the loader lags, the thread pauses after each write, so that senders get answers no
faster than requests are stored and derived. `load/flow_control/pacing.py` says for how long.

`format.py` defines the format of a segment.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from otel_lightning.collector.alarms import RECEIVING, Alarms
from otel_lightning.collector.files.atomic import locked, sync
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.spool.disk_time import HANGS, DiskTime
from otel_lightning.collector.spool.faults import fault, set_aside
from otel_lightning.collector.spool.folder import SET_ASIDE, bytes_after
from otel_lightning.collector.spool.format import (
    Damage,
    Position,
    Record,
    contents,
    encode,
    read_segment,
    segment_path,
    segment_size,
    segments_of,
)
from otel_lightning.collector.spool.identity import has_id, spool_id, write_spool_id
from otel_lightning.collector.spool.segment import copied, make_durable, write_all
from otel_lightning.collector.spool.waiting import WaitingRequest, acknowledge, refuse

if TYPE_CHECKING:
    from otel_lightning.collector.spool.backpressure import Backpressure

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 256 * 1024 * 1024  # size above which a new segment begins
BACKLOG_BYTES = 4 * 1024 * 1024 * 1024  # size above which requests are refused
BATCH = 256  # most requests in one write
LOOK_SECONDS = 2.0  # how often the file is checked while no request arrives
TRIED_BYTES = 64 * 1024  # least that is written, and taken away again, to find out whether it fits


class SpoolError(Exception):
    """The spool accepts no requests at present; the sender should retry."""


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
        self.backpressure: Backpressure | None = None
        """How senders are slowed; None accepts as fast as requests are written."""
        self.alarms = Alarms()
        """Has the alarm `receiving` while requests cannot be written."""
        self._closing = threading.Event()
        self.disk_time = DiskTime()
        self._failed: str | None = None
        self._refused_bytes = 0  # size of the largest request that could not be written
        self._accounting = threading.Lock()  # the writer adds segments, the loader removes them
        self._full: dict[int, int] = {}  # size in bytes of each segment that is full
        self._queue: queue.SimpleQueue[WaitingRequest | Future[Position] | None] = (
            queue.SimpleQueue()
        )
        with ExitStack() as held:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(locked(folder, wait=False))
                self.id = spool_id(folder)
                self._start()
            except OSError as error:
                raise OSError(error.errno, fault(folder, error)) from error
            self._lock = held.pop_all()
        self._writer = threading.Thread(target=self._write, name="spool")
        self._writer.start()

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
        done: Future[None] = Future()
        self._queue.put(WaitingRequest(signal, body, rows, done))
        return done

    def begin_segment(self) -> Position:
        """Begin a new segment, and return its start: all that was acknowledged before lies before.

        Raises:
            SpoolError: If it cannot be made.
        """
        begun: Future[Position] = Future()
        self._queue.put(begun)
        while not begun.done() and self._writer.is_alive():
            wait([begun], timeout=LOOK_SECONDS)
        if not begun.done():
            raise SpoolError("the spool is closed")
        return begun.result()

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
        for one in self._read(start):
            record = self._damaged(one) if isinstance(one, Damage) else one
            records.append(record)
            size += len(record.body)
            if size >= limit:
                break
        return records

    def oldest_ns(self, start: Position) -> int | None:
        """Return when the first undamaged record after a position was received; None if none."""
        with suppress(FileNotFoundError):  # the loader has just deleted the segment
            for one in self._read(start):
                if isinstance(one, Record):
                    return one.received_ns
        return None

    def _read(self, start: Position) -> Iterator[Record | Damage]:
        durable = self._durable  # one value for the whole read: the writer thread changes it
        with self._accounting:
            full = dict(self._full)
        for segment in segments_of(self.folder):
            if start.segment <= segment <= durable.segment:
                offset = start.offset if segment == start.segment else 0
                # Not the size of the file, which somebody may have truncated.
                end = durable.offset if segment == durable.segment else full.get(segment)
                yield from read_segment(self.folder, Position(segment, offset), end)

    def _damaged(self, damage: Damage) -> Record:
        file = set_aside(self.folder, damage, self.folder / SET_ASIDE)
        return Record("traces", time.time_ns(), 0, b"", damage.end, file)

    def forget(self, loaded: Position) -> None:
        """Delete the segments before `loaded`, because their requests are stored."""
        with self._accounting:
            self._loaded = loaded
            stored = [segment for segment in self._full if segment < loaded.segment]
            for segment in stored:
                del self._full[segment]
        for segment in stored:
            segment_path(self.folder, segment).unlink(missing_ok=True)

    def backlog(self) -> int:
        """Return the number of durable bytes that the loader has not stored yet."""
        with self._accounting:
            sizes = {**self._full, self._durable.segment: self._durable.offset}
            return bytes_after(sizes, self._loaded)

    @property
    def start(self) -> Position:
        """Position of the first record."""
        return Position(min([*self._full, self._durable.segment]), 0)

    @property
    def end(self) -> Position:
        """Position up to which records are durable."""
        return self._durable

    def is_alive(self) -> bool:
        """Return whether the writer thread runs, or was closed; if not, it has died."""
        return self._writer.is_alive() or self._closing.is_set()

    def close(self) -> None:
        """Make the queued requests durable, then stop the writer thread."""
        self._closing.set()
        self._queue.put(None)
        self._writer.join()
        os.close(self._file)
        self._lock.close()

    def _start(self) -> None:
        segments = segments_of(self.folder)
        first = segments[0] if segments else 1
        last = segments[-1] if segments else 1
        found = contents(self.folder, last)
        end = found.end
        if found.has_damaged_end:  # keep it for the loader, which sets it aside: start a segment
            last, end = last + 1, 0
        self._file = os.open(segment_path(self.folder, last), os.O_RDWR | os.O_CREAT, 0o600)
        if torn := os.fstat(self._file).st_size - end:
            logger.info(
                "A crash left %d bytes that were never acknowledged; they are removed.", torn
            )
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        sync(self.folder)
        self._durable = Position(last, end)
        self._full = {
            n: segment_size(self.folder, n) for n in segments_of(self.folder) if n != last
        }
        self._loaded = Position(first, 0)

    def _write(self) -> None:
        while True:
            batch, stop, begun = self._wait()
            if batch:
                self._write_batch(batch)
            if begun:
                self._begin_segment(begun)
            self._pause(sum(len(item.body) for item in batch))
            if stop:
                return

    def _begin_segment(self, begun: Future[Position]) -> None:
        try:
            if self._failed:
                raise SpoolError(self._failed)  # noqa: TRY301  the one place that answers a failure
            self._keep_in_place()
            if self._durable.offset:
                self._rotate()
        except (OSError, SpoolError) as error:
            begun.set_exception(SpoolError(self._described(error)))
        else:
            begun.set_result(self._durable)

    def _wait(self) -> tuple[list[WaitingRequest], bool, Future[Position] | None]:
        """Wait for requests, and return those in the queue, up to `BATCH`.

        Returns:
            The requests, whether to stop after them, and who waits for a new segment after them.
        """
        batch: list[WaitingRequest] = []
        item = self._next()
        while isinstance(item, WaitingRequest):
            batch.append(item)
            if len(batch) == BATCH:
                return batch, False, None
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False, None
        return batch, item is None, item

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
                self._keep_in_place()
                # A file system that has become read-only refuses to open the file to write.
                path = segment_path(self.folder, self._durable.segment)
                os.close(os.open(path, os.O_WRONLY))
                if self._failed:
                    self._begin_again()
                elif self.alarms.is_raised(RECEIVING):
                    self._try()
        except OSError as error:
            self._recover(error)
        else:
            self._note_written(self._refused_bytes)

    def _try(self) -> None:
        """Write to the file, and take it away again."""
        # As much as was refused: less may fit. A crash leaves a torn tail of zeros.
        write_all(self._file, [bytes(max(self._refused_bytes, TRIED_BYTES))])
        make_durable(self._file)
        self._cut()

    def _begin_again(self) -> None:
        """Go on after a failed sync, in a new segment, once the disk has synced something there.

        What was acknowledged is in the segments before, which were synced.
        """
        self._cut()
        if self._durable.offset:
            self._rotate()
        self._try()
        self._failed = None

    def _write_batch(self, batch: list[WaitingRequest]) -> None:
        largest = max(len(item.body) for item in batch)
        try:
            if self._failed:
                raise SpoolError(self._failed)  # noqa: TRY301  the one place that answers a failure
            parts = [part for i in batch for part in encode(i.signal, i.body, i.rows)]
            with self.disk_time.spent():
                self._append(parts)
        except (OSError, SpoolError) as error:
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

    def _append(self, parts: list[bytes]) -> None:
        self._keep_in_place()
        if self._durable.offset >= SEGMENT_BYTES:
            self._rotate()
        size = write_all(self._file, parts)
        try:
            make_durable(self._file)
        except OSError as error:
            # After a failed sync the kernel may drop the pages, and a second sync would succeed
            # without them. So what the disk has after the durable records is unknown.
            self._failed = self._described(error)
            raise
        # Somebody may have deleted the file during the write.
        self._keep_in_place()
        self._durable = Position(self._durable.segment, self._durable.offset + size)

    def _keep_in_place(self) -> None:
        """Restore the segment's file if somebody deleted or moved it, so that it can be read.

        Raises:
            OSError: If it cannot be restored; then no request may be acknowledged.
        """
        path = segment_path(self.folder, self._durable.segment)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(self._file)):
                return
            if self._is_whole(path):
                self._use(path)
                return
        # If the folder above is gone too, it was moved, or its disk is not mounted: it may be back.
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._file = copied(self._file, path)
        write_spool_id(self.folder, self.id)
        logger.error(
            "'%s' was deleted or moved while it was written. It is put back; %d bytes of earlier "
            "segments that were not stored yet are lost.", path, self._forget_lost_segments(),
        )  # fmt: skip

    def _is_whole(self, path: Path) -> bool:
        """Return whether another file in this one's place has all durable records of it.

        So it is after the disk was mounted again: then the open file cannot even be read.
        """
        if path.stat().st_size < self._durable.offset or not has_id(self.folder, [self.id]):
            return False
        found = contents(self.folder, self._durable.segment)
        return found.end >= self._durable.offset and not found.damages

    def _use(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR)
        os.close(self._file)
        self._file = file
        self._cut()
        make_durable(file)
        logger.warning("'%s' is another file than before, as after mounting: it is used.", path)

    def _forget_lost_segments(self) -> int:
        """Remove full segments without a file from the list; return their bytes not stored."""
        with self._accounting:
            gone = {
                n: s for n, s in self._full.items() if not segment_path(self.folder, n).exists()
            }
            for segment in gone:
                del self._full[segment]
            return bytes_after(gone, self._loaded)

    def _rotate(self) -> None:
        segment = self._durable.segment + 1
        path = segment_path(self.folder, segment)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            sync(self.folder)
        except OSError:  # such as no free descriptor: the next attempt makes the file again
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        os.close(self._file)
        with self._accounting:
            self._full[self._durable.segment] = self._durable.offset
            self._file, self._durable = file, Position(segment, 0)

    def _recover(self, error: Exception) -> str:
        """Remove the bytes of a failed write, such as on a full disk, before the next write.

        Returns:
            Why the write failed.
        """
        if isinstance(error, OSError) and not self._failed:
            try:
                self._cut()
            except OSError as second:
                self._failed = self._described(second)
        reason = self._failed or self._described(error)
        self.alarms.raise_alarm(RECEIVING, reason)
        return reason

    def _described(self, error: Exception) -> str:
        if isinstance(error, OSError):
            return fault(segment_path(self.folder, self._durable.segment), error)
        return str(error)

    def _cut(self) -> None:
        """Remove what was written after the durable records."""
        os.ftruncate(self._file, self._durable.offset)
        os.lseek(self._file, self._durable.offset, os.SEEK_SET)

    def _note_written(self, size: int) -> None:
        """Clear the alarm, after this size was written, if all that was refused would fit."""
        if not self._failed and size >= self._refused_bytes:
            self._refused_bytes = 0
            self.alarms.clear(RECEIVING)
