"""The format of a spool segment: records one behind the other, and how to read past damage.

A record is a little-endian header (length of the body, crc32 of what follows, when it came in Unix
nanoseconds, the signal's number, number of rows it makes) and the request's protobuf body,
decompressed.

A disk can change bytes that were written. A record whose checksum is wrong is skipped, the next
whole one is found, and the bytes between are reported as damage.
"""

import mmap
import re
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.otlp.fields import Signal

CHECK, CHECKED = struct.Struct("<QI"), struct.Struct("<QBI")
HEADER = struct.Struct(CHECK.format + CHECKED.format.removeprefix("<"))
SIGNALS: tuple[Signal, ...] = ("traces", "logs")
HEADER_SHAPE = re.compile(
    rb"[\x00-\x0f]\x00{4}"  # the high bytes of the length: a body below 256 MiB
    rb"[\x00-\xff]{4}"  # any checksum
    rb"[\x00-\xff]{7}[\x10-\x2f][\x00\x01]",  # a time between 2006 and 2079, a known signal
)
"""What a header looks like from its fourth byte on: few other places match, and the checksum
decides."""
SHAPE_AT = 3


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
    damaged: Path | None = None
    """Set if this stands for damaged bytes, without a body: the file that keeps them."""


class Damage(NamedTuple):
    """Bytes of a segment that are no record, and why."""

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


def segments_of(folder: Path) -> list[int]:
    """List the numbers of the segments in a folder, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.spool"))


def encode(signal: Signal, body: bytes, rows: int) -> tuple[bytes, bytes]:
    """Make the header and the body of a record that came just now."""
    told = CHECKED.pack(time.time_ns(), SIGNALS.index(signal), rows)
    return CHECK.pack(len(body), _checksum(told, body)) + told, body


def scan(folder: Path, start: Position) -> Iterator[Record]:
    """Read the whole records of one segment from a position on; skip what is damaged."""
    found = read_segment(folder, start, may_be_torn=True)
    return (one for one in found if isinstance(one, Record))


def read_segment(
    folder: Path, start: Position, end: int | None = None, *, may_be_torn: bool = False
) -> Iterator[Record | Damage]:
    """Read one segment from a position on: its whole records, and the damage between them.

    Args:
        folder: The spool.
        start: A position at which a record begins.
        end: Offset to read up to; the size of the file by default.
        may_be_torn: Whether half a record, or zeros, at the very end are what a crash left of the
            last write. That was never acknowledged and is no damage.
    """
    with segment_path(folder, start.segment).open("rb") as file:
        size = file.seek(0, 2) if end is None else end
        if size <= start.offset:
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            offset = start.offset
            while offset < size:
                record = _record_at(data, offset, start.segment)
                if record:
                    yield record
                    offset = record.end.offset
                    continue
                following = _next_record(data, offset)
                if following is None and may_be_torn and _is_torn(data, offset):
                    return
                until = Position(start.segment, size if following is None else following)
                reason = f"{until.offset - offset:,} bytes from byte {offset:,} on are damaged"
                yield Damage(Position(start.segment, offset), until, reason)
                offset = until.offset


class Contents(NamedTuple):
    """What a segment holds: where its last whole record ends, and what is damaged."""

    end: int
    damages: list[Damage]

    @property
    def has_damaged_end(self) -> bool:
        """Whether damage follows the last whole record."""
        return any(damage.end.offset > self.end for damage in self.damages)


def contents(folder: Path, segment: int) -> Contents:
    """Read a whole segment, if it exists; its end may be torn."""
    end, damages = 0, list[Damage]()
    if segment_path(folder, segment).exists():
        for one in read_segment(folder, Position(segment, 0), may_be_torn=True):
            if isinstance(one, Damage):
                damages.append(one)
            else:
                end = one.end.offset
    return Contents(end, damages)


def _record_at(data: mmap.mmap, offset: int, segment: int) -> Record | None:
    """Read the record at an offset; None if no whole and undamaged one begins there."""
    if offset + HEADER.size > len(data):
        return None
    length, checksum, *told = HEADER.unpack_from(data, offset)
    body_at, end = offset + HEADER.size, offset + HEADER.size + length
    if end > len(data):
        return None
    body = data[body_at:end]
    if _checksum(CHECKED.pack(*told), body) != checksum:
        return None
    received_ns, signal, rows = told
    return Record(SIGNALS[signal], received_ns, rows, body, Position(segment, end))


def _next_record(data: mmap.mmap, damaged: int) -> int | None:
    """Return where the first whole record behind a damaged one begins; None if there is none.

    If only the body or the checksum is damaged, the length in the header leads there. If not, each
    place that looks like a header is tried.
    """
    if damaged + HEADER.size <= len(data):
        length, *_ = HEADER.unpack_from(data, damaged)
        claimed = damaged + HEADER.size + length
        if claimed < len(data) and _record_at(data, claimed, 0):
            return int(claimed)
    at = damaged + 1 + SHAPE_AT
    while found := HEADER_SHAPE.search(data, at):
        if _record_at(data, found.start() - SHAPE_AT, 0):
            return found.start() - SHAPE_AT
        at = found.start() + 1
    return None


def _is_torn(data: mmap.mmap, offset: int) -> bool:
    """Tell what a crash left of the last write from a whole record that was changed later."""
    rest = len(data) - offset
    if rest < HEADER.size:
        return True
    length, *_ = HEADER.unpack_from(data, offset)
    return rest < HEADER.size + length or not any(data[offset:])


def _checksum(told: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(told))
