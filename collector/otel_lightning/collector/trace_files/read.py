"""Read files of traces: protobuf, JSON, JSON lines, CSV or Parquet, plain, gzip or zstd.

The kind of a file is detected by its content: OTLP, or records that another trace store exported.
JSON lines, CSV and Parquet are read in parts, so that a large file needs no more memory.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import zstandard

from otel_lightning.collector.trace_files.exports import Item, Row, read_rows
from otel_lightning.collector.trace_files.otlp_requests import (
    RESOURCES,
    Contents,
    from_json,
    from_protobuf,
)
from otel_lightning.collector.trace_files.records import ExportedJudgement
from otel_lightning.collector.trace_files.tables import csv_rows, parquet_rows

# First bytes of a file: RFC 1952 (gzip), RFC 8878 (zstd), Apache Parquet.
GZIP, ZSTD, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
JSON_STARTS = (b"{", b"[")
HEAD_BYTES = 1 << 16
"""Number of bytes that tell what a file holds."""
KEPT_BYTES = 64_000_000
"""Requests of a file with more bytes than this are not kept: the file is read again to store it."""


class TraceFile(NamedTuple):
    """The content of a file of traces."""

    requests: Iterable[Contents]
    """Each loop over them reads a large file again."""
    records: int
    """Number of spans and log records."""
    judgements: Sequence[ExportedJudgement] = ()
    left_out: Sequence[str] = ()
    """Why records cannot be stored: one clause for each record."""


class _Again:
    """The requests of a file, which each loop over them reads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Contents]:
        return (one for one in _items(self._path) if isinstance(one, Contents))


def read_file(path: Path) -> TraceFile:
    """Read and check a whole file, so that a damaged file stores nothing.

    Raises:
        ValueError: If it holds no traces, is damaged or is truncated; the message says which.
        OSError: If it cannot be read.
    """
    kept, judgements, left_out = list[Contents](), list[ExportedJudgement](), list[str]()
    size = records = 0
    for one in _items(path):
        if isinstance(one, Contents):
            size, records = size + len(one.body), records + one.records
            if size <= KEPT_BYTES:
                kept.append(one)
            else:
                kept.clear()
        elif isinstance(one, ExportedJudgement):
            judgements.append(one)
        else:
            left_out.append(one.reason)
    requests = kept if size <= KEPT_BYTES else _Again(path)
    return TraceFile(requests, records, judgements, left_out)


def _items(path: Path) -> Iterator[Item]:
    """Yield everything in a file, in order."""
    with path.open("rb", buffering=0) as file:
        start = file.read(len(PARQUET))
        file.seek(0)
        if start == PARQUET:
            yield from read_rows(_numbered(path, parquet_rows(path)))
            return
        try:
            with BufferedReader(_decompressed(file, start), HEAD_BYTES) as stream:
                yield from _of_stream(path, stream)
        except (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: the compressed file is damaged or cut off ({error}). "
                             f"Export it again.") from error  # fmt: skip


def _decompressed(file: IO[bytes], start: bytes) -> Any:
    if start.startswith(GZIP):
        return gzip.GzipFile(fileobj=file)
    if start == ZSTD:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return file


def _of_stream(path: Path, stream: BufferedReader) -> Iterator[Item]:
    head = stream.peek(HEAD_BYTES)
    if not head.strip():
        raise ValueError(f"{path}: is empty. Export the traces again.")
    if head.startswith(RESOURCES):
        yield from _of_bytes(path, stream.read())
    elif head.lstrip().startswith(JSON_STARTS):
        yield from _of_documents(_documents(path, stream))
    elif _is_csv(head):
        yield from read_rows(_numbered(path, csv_rows(stream)))
    else:
        yield from_protobuf(path, stream.read())


def _of_bytes(path: Path, data: bytes) -> Iterator[Item]:
    """Yield a request in protobuf, or what JSON holds that begins with an empty line.

    Both can begin with a line break and a brace, which are a resource of 123 bytes in protobuf.
    """
    try:
        yield from_protobuf(path, data)
    except ValueError:
        if not data.lstrip().startswith(JSON_STARTS):
            raise
        yield from _of_documents(_documents(path, data.splitlines(keepends=True)))


def _is_csv(head: bytes) -> bool:
    """Return whether bytes begin with a line of text that has commas."""
    try:
        line = head.splitlines()[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return "," in line and line.isprintable()


def _numbered(path: Path, rows: Iterator[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the rows of a table, each with its number from 1."""
    number = 0
    try:
        for row in rows:
            number += 1
            yield Row(f"{path}, row {number}", row, is_of_table=True)
    except ValueError as error:
        where = f"{path}, after row {number}" if number else str(path)
        raise ValueError(f"{where}: {error}. Export it again.") from error
    if not number:
        raise ValueError(f"{path}: is a table without rows. Export the traces again.")


def _documents(path: Path, lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the document that a file is, or each line of JSON lines."""
    filled = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    number, first = next(filled)
    second = next(filled, None)
    rest = chain((second,) if second else (), filled)
    try:
        document = orjson.loads(first)
    except orjson.JSONDecodeError as error:
        # These are no JSON lines, but one document of several lines, or damaged.
        data = first + b"".join(line for _, line in rest)
        yield Row(str(path), _parsed(path, number, data, error))
        return
    yield Row(f"{path}:{number}" if second else str(path), document)
    for number, line in rest:
        yield Row(f"{path}:{number}", _parsed(path, number, line))


def _parsed(
    path: Path, number: int, data: bytes, first: orjson.JSONDecodeError | None = None
) -> Any:
    """Parse JSON; the message of an error names this line, and the first error if there was one."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(
            f"{path}:{number}: is not JSON, or is cut off ({first or error}). Export it again."
        ) from error


def _of_documents(documents: Iterable[Row]) -> Iterator[Item]:
    return read_rows(row for document in documents for row in _records(document))


def _records(document: Row) -> Iterator[Row | Contents]:
    """Yield a document of OTLP, or the records of others: one, a list, or a page of them."""
    where, content, _ = document
    if otlp := from_json(where, content):
        yield otlp
        return
    page = content.get("data") if isinstance(content, dict) else content
    if not isinstance(page, list):
        yield document
        return
    for number, row in enumerate(page, start=1):
        yield Row(f"{where}, record {number}", row)
