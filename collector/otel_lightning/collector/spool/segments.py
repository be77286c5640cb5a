"""The segments of a spool: durable records in files, written by one thread and read by another."""

import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from otel_lightning.collector.files.atomic import sync
from otel_lightning.collector.spool.faults import set_aside
from otel_lightning.collector.spool.folder import SET_ASIDE, bytes_after
from otel_lightning.collector.spool.format import (
    Damage,
    Position,
    Record,
    contents,
    read_segment,
    segment_path,
    segment_size,
    segments_of,
)
from otel_lightning.collector.spool.identity import has_id, spool_id, write_spool_id
from otel_lightning.collector.spool.segment import copied, make_durable, write_all

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 256 * 1024 * 1024  # size above which a new segment begins


class SyncError(OSError):
    """A sync failed, so the content of the disk after the durable records is unknown.

    The kernel may drop the pages of a failed sync, and a second sync would succeed without them.
    """


class Segments:
    """The files of one spool. All but the last segment are full, and do not change."""

    def __init__(self, folder: Path) -> None:
        """Open the last segment, and remove what a crash left after its last whole record.

        Raises:
            OSError: If the folder cannot be read or written.
        """
        self.folder = folder
        self.id = spool_id(folder)
        self._accounting = threading.Lock()  # the writer adds segments, the loader removes them
        self._full: dict[int, int] = {}  # size in bytes of each segment that is full
        numbers = segments_of(folder)
        first, last = (numbers[0], numbers[-1]) if numbers else (1, 1)
        segment = contents(folder, last)
        end = segment.end
        if segment.has_damaged_end:  # keep it for the loader, which sets it aside
            last, end = last + 1, 0
        self._file = os.open(segment_path(folder, last), os.O_RDWR | os.O_CREAT, 0o600)
        if torn := os.fstat(self._file).st_size - end:
            logger.info(
                "A crash left %d bytes that were never acknowledged; they are removed.", torn
            )
        self._durable = Position(last, end)
        self.truncate()
        sync(folder)
        self._full = {n: segment_size(folder, n) for n in segments_of(folder) if n != last}
        self._loaded = Position(first, 0)

    def renew_id(self) -> None:
        """Give the spool another id, which no copy of it has.

        Raises:
            OSError: If it cannot be written; then the id stays.
        """
        new_id = secrets.token_hex(16)
        write_spool_id(self.folder, new_id)
        self.id = new_id

    @property
    def start(self) -> Position:
        """Position of the first record."""
        return Position(min([*self._full, self._durable.segment]), 0)

    @property
    def end(self) -> Position:
        """Position up to which records are durable."""
        return self._durable

    @property
    def path(self) -> Path:
        """Path of the segment that is written."""
        return segment_path(self.folder, self._durable.segment)

    def read(self, start: Position) -> Iterator[Record]:
        """Yield the durable records from a position on.

        Damaged bytes are copied to a file, and yielded as a record that has its path and no body.
        """
        for part in self._read(start):
            yield self._set_aside(part) if isinstance(part, Damage) else part

    def oldest_ns(self, start: Position) -> int | None:
        """Return when the first undamaged record after a position was received; None if none."""
        with suppress(FileNotFoundError):  # the loader has just deleted the segment
            for part in self._read(start):
                if isinstance(part, Record):
                    return part.received_ns
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

    def _set_aside(self, damage: Damage) -> Record:
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

    def append(self, parts: list[bytes]) -> None:
        """Write records and make them durable.

        Raises:
            SyncError: If they were written, and may not be durable.
            OSError: If they were not written; call `truncate` before the next write.
        """
        self.keep_in_place()
        if self._durable.offset >= SEGMENT_BYTES:
            self.begin_segment()
        size = write_all(self._file, parts)
        try:
            make_durable(self._file)
        except OSError as error:
            raise SyncError(*error.args) from error
        # Somebody may have deleted the file during the write.
        self.keep_in_place()
        self._durable = Position(self._durable.segment, self._durable.offset + size)

    def truncate(self) -> None:
        """Remove what was written after the durable records."""
        os.ftruncate(self._file, self._durable.offset)
        os.lseek(self._file, self._durable.offset, os.SEEK_SET)

    def probe(self, size: int) -> None:
        """Write bytes to the file and remove them again, to find out whether they fit.

        A crash leaves a torn tail of zeros.

        Raises:
            OSError: If they cannot be written and made durable.
        """
        write_all(self._file, [bytes(size)])
        make_durable(self._file)
        self.truncate()

    def begin_segment(self) -> None:
        """Begin a new segment, unless the last one is empty.

        Raises:
            OSError: If its file cannot be made.
        """
        if not self._durable.offset:
            return
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

    def keep_in_place(self) -> None:
        """Restore the segment's file if somebody deleted or moved it, so that it can be read.

        Raises:
            OSError: If it cannot be restored; then no request may be acknowledged.
        """
        path = self.path
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(self._file)):
                return
            if self._is_whole(path):
                self._reopen(path)
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

        This happens after the disk was mounted again: then the open file cannot even be read.
        """
        if path.stat().st_size < self._durable.offset or not has_id(self.folder, [self.id]):
            return False
        segment = contents(self.folder, self._durable.segment)
        return segment.end >= self._durable.offset and not segment.damages

    def _reopen(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR)
        os.close(self._file)
        self._file = file
        self.truncate()
        make_durable(file)
        logger.warning("'%s' is another file than before, as after mounting: it is used.", path)

    def _forget_lost_segments(self) -> int:
        """Remove full segments without a file from the list; return their bytes not stored."""
        with self._accounting:
            lost = {
                n: s for n, s in self._full.items() if not segment_path(self.folder, n).exists()
            }
            for segment in lost:
                del self._full[segment]
            return bytes_after(lost, self._loaded)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
