"""The format of a spool segment: a sequence of records; damaged bytes are skipped.

A record is a little-endian header and the decompressed protobuf body of a request. The header has
the length of the body, the CRC-32 of all that follows, the time of receipt in Unix nanoseconds, the
number of the signal, and the number of rows.

A disk can change written bytes. A reader skips a record with a wrong checksum, searches for the
next valid one, and reports the bytes between as damage.

Segments are read, not mapped into memory: when the disk of a mapped file fails, or the file is
truncated, the system ends the process (SIGBUS). A read fails, or returns less.
"""

import os
import re
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from otel_lightning.collector.otlp.signals import Signal

CHECK, CHECKED = struct.Struct("<QI"), struct.Struct("<QBI")  # length, crc; time, signal, rows
HEADER = struct.Struct(CHECK.format + CHECKED.format.removeprefix("<"))
SIGNALS: tuple[Signal, ...] = ("traces", "logs")
HEADER_SHAPE = re.compile(
    rb"[\x00-\x0f]\x00{4}"  # the high bytes of the length: a body below 256 MiB
    rb"[\x00-\xff]{4}"  # any checksum
    rb"[\x00-\xff]{7}[\x10-\x2f][\x00\x01]",  # a time between 2006 and 2079, a known signal
)
"""Pattern of a header from its fourth byte on. Few other bytes match; the checksum decides."""
SHAPE_AT = 3  # offset of the pattern in a header
SEARCHED_BYTES = 4 * 1024 * 1024  # of a damaged segment at a time


class Position(NamedTuple):
    """A position in the spool: the number of a segment and a byte offset in it."""

    segment: int
    offset: int


class Record(NamedTuple):
    """One request, and the position of the next record."""

    signal: Signal
    received_ns: int
    rows: int
    body: bytes
    end: Position
    damaged: Path | None = None
    """For damaged bytes, which have no body: the file with a copy of them."""


class Damage(NamedTuple):
    """Bytes of a segment that are not a valid record, and a description."""

    start: Position
    end: Position
    reason: str

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end.offset - self.start.offset


def segment_path(folder: Path, segment: int) -> Path:
    """Return the file of a segment."""
    return folder / f"{segment:010d}.spool"


def segment_size(folder: Path, segment: int) -> int:
    """Return the number of bytes of a segment's file."""
    return segment_path(folder, segment).stat().st_size


def segments_of(folder: Path) -> list[int]:
    """List the numbers of the segments in a folder, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.spool"))


def encode(signal: Signal, body: bytes, rows: int) -> tuple[bytes, bytes]:
    """Return the header and the body of a record; the time of receipt is now."""
    checked = CHECKED.pack(time.time_ns(), SIGNALS.index(signal), rows)
    return CHECK.pack(len(body), _checksum(checked, body)) + checked, body


def scan(folder: Path, start: Position) -> Iterator[Record]:
    """Read the valid records of one segment from a position on; skip damage."""
    parts = read_segment(folder, start, may_be_torn=True)
    return (one for one in parts if isinstance(one, Record))


def read_segment(
    folder: Path, start: Position, end: int | None = None, *, may_be_torn: bool = False
) -> Iterator[Record | Damage]:
    """Read one segment from a position on: valid records, and the damage between them.

    Args:
        folder: The spool's folder.
        start: Position of a record.
        end: Offset to read up to; the size of the file by default.
        may_be_torn: Whether a crash may have interrupted the last write. Then a partial record, or
            zeros, at the end are not damage, because they were never acknowledged.
    """
    with segment_path(folder, start.segment).open("rb") as file:
        data = _Bytes(file, os.fstat(file.fileno()).st_size if end is None else end)
        offset = start.offset
        while offset < data.size:
            record = _record_at(data, offset, start.segment)
            if record:
                yield record
                offset = record.end.offset
                continue
            following = _next_record(data, offset)
            if following is None and may_be_torn and _is_torn(data, offset):
                return
            until = Position(start.segment, data.size if following is None else following)
            fault = "damaged" if data.read(offset, 1) else "missing: somebody truncated the file"
            reason = f"{until.offset - offset:,} bytes from byte {offset:,} on are {fault}"
            yield Damage(Position(start.segment, offset), until, reason)
            offset = until.offset


class _Bytes:
    """The bytes of a segment's file, up to a size that the file may no longer have."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self.size = file, size

    def read(self, offset: int, size: int) -> bytes:
        """Read from an offset on; fewer bytes where the file, or what may be read, ends earlier."""
        self._file.seek(offset)
        return self._file.read(max(min(size, self.size - offset), 0))

    def windows(self, offset: int, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Yield the rest from an offset on in parts, each with its offset.

        Args:
            offset: Where to begin.
            overlap: Bytes at the end of each part that the next one begins with.
        """
        while window := self.read(offset, SEARCHED_BYTES + overlap):
            yield offset, window
            offset += SEARCHED_BYTES


class Contents(NamedTuple):
    """The end of a segment's last valid record, in bytes, and its damage."""

    end: int
    damages: list[Damage]

    @property
    def has_damaged_end(self) -> bool:
        """Whether damage follows the last valid record."""
        return any(damage.end.offset > self.end for damage in self.damages)


def contents(folder: Path, segment: int) -> Contents:
    """Read a whole segment, if it exists; a crash may have interrupted its last write."""
    end, damages = 0, list[Damage]()
    if segment_path(folder, segment).exists():
        for one in read_segment(folder, Position(segment, 0), may_be_torn=True):
            if isinstance(one, Damage):
                damages.append(one)
            else:
                end = one.end.offset
    return Contents(end, damages)


def _record_at(data: _Bytes, offset: int, segment: int) -> Record | None:
    """Read the record at an offset; None if no valid record begins there."""
    header = data.read(offset, HEADER.size)
    if len(header) < HEADER.size:
        return None
    length, checksum, *fields = HEADER.unpack(header)
    end = offset + HEADER.size + length
    if end > data.size:
        return None
    body = data.read(offset + HEADER.size, length)
    if len(body) < length or _checksum(CHECKED.pack(*fields), body) != checksum:
        return None
    received_ns, signal, rows = fields
    return Record(SIGNALS[signal], received_ns, rows, body, Position(segment, end))


def _next_record(data: _Bytes, damaged: int) -> int | None:
    """Return the offset of the first valid record after a damaged one; None if there is none.

    If only the body or the checksum is damaged, the length in the header gives the offset. If not,
    every match of the header's pattern is tried.
    """
    header = data.read(damaged, HEADER.size)
    if len(header) == HEADER.size:
        length, *_ = HEADER.unpack(header)
        claimed = damaged + HEADER.size + length
        if claimed < data.size and _record_at(data, claimed, 0):
            return int(claimed)
    for start, window in data.windows(damaged + 1 + SHAPE_AT, HEADER.size):
        at = 0
        while match := HEADER_SHAPE.search(window, at):
            if _record_at(data, start + match.start() - SHAPE_AT, 0):
                return start + match.start() - SHAPE_AT
            at = match.start() + 1
    return None


def _is_torn(data: _Bytes, offset: int) -> bool:
    """Return whether the rest is an interrupted write, and not a complete record that changed."""
    header = data.read(offset, HEADER.size)
    if len(header) < HEADER.size:
        return True
    length, *_ = HEADER.unpack(header)
    if data.size - offset < HEADER.size + length:
        return True
    return not any(window.strip(b"\0") for _, window in data.windows(offset, 0))


def _checksum(header: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(header))
