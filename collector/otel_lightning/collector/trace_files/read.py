"""Read files of traces: protobuf, JSON or JSON lines, plain, gzip or zstd, detected by content.

JSON holds OTLP, or records that another trace store exported.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.otlp.json_encoding import parse_json
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.trace_files.formats import FORMATS, Format
from otel_lightning.collector.trace_files.records import (
    Exported,
    ExportedJudgement,
    ExportedSpan,
    LeftOut,
    key_values,
)

# First bytes of a compressed file: RFC 1952 (gzip) and RFC 8878 (zstd).
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
RESOURCES = b"\x0a"  # tag of field 1, length-delimited: the first byte of every OTLP request
CONTINUES = 0x80  # bit set in every byte of a varint except the last
KINDS: dict[str, tuple[Signal, Any]] = {
    "resourceSpans": ("traces", ExportTraceServiceRequest),
    "resourceLogs": ("logs", ExportLogsServiceRequest),
}
SPANS_AT_ONCE = 1_000
"""Most spans of another store in one request."""
REQUEST_BYTES = 16_000_000
"""A request with several of these spans is at most this large: a running ingester refuses requests
above its `--max-body`."""
Row = tuple[str, Any]
"""A record and where it stands, for error messages."""


class Contents(NamedTuple):
    """One OTLP request from a file: its signal, protobuf bytes and number of records."""

    signal: Signal
    body: bytes
    records: int


class TraceFile(NamedTuple):
    """What a file holds."""

    requests: list[Contents]
    judgements: Sequence[ExportedJudgement] = ()
    left_out: Sequence[str] = ()
    """Why records cannot be stored: one clause for each record."""


def read_file(path: Path) -> TraceFile:
    """Read and check a whole file, so that a damaged file stores nothing.

    Raises:
        ValueError: If it holds no traces, is damaged or is truncated; the message says which.
        OSError: If it cannot be read.
    """
    try:
        data = _decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        # BadGzipFile is an OSError too, but means damage and not that the file is unreadable.
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise
        raise ValueError(f"{path}: the compressed file is damaged or cut off ({error}). "
                         f"Export it again.") from error  # fmt: skip
    if not data.strip():
        raise ValueError(f"{path}: is empty. Export the traces again.")
    if data.lstrip()[:1] in (b"{", b"["):
        return _json(path, _documents(path, data))
    return TraceFile([_protobuf(path, data)])


def _decompress(data: bytes) -> bytes:
    if data.startswith(GZIP):
        return gzip.decompress(data)
    if data.startswith(ZSTD):
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            return bytes(reader.read())
    return data


def _documents(path: Path, data: bytes) -> Iterator[Row]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        for number, line in _json_lines(path, data):
            yield f"{path}:{number}", line
    else:
        yield str(path), document


def _json(path: Path, documents: Iterable[Row]) -> TraceFile:
    requests: list[Contents] = []
    exported: list[Exported] = []
    for where, document in documents:
        if otlp := _otlp(where, document):
            requests.append(otlp)
        else:
            exported += _exported(where, document)
    spans = [one for one in exported if isinstance(one, ExportedSpan)]
    try:
        for start in range(0, len(spans), SPANS_AT_ONCE):
            requests += _requests(spans[start : start + SPANS_AT_ONCE])
    except (ValueError, TypeError) as error:  # orjson refuses with a TypeError
        raise ValueError(f"{path}: a span cannot be read ({error}).") from error
    return TraceFile(
        requests,
        [one for one in exported if isinstance(one, ExportedJudgement)],
        [one.reason for one in exported if isinstance(one, LeftOut)],
    )


def _json_lines(path: Path, data: bytes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            try:
                yield number, orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise ValueError(
                    f"{path}:{number}: is not JSON, or is cut off ({error}). Export it again."
                ) from error


def _otlp(where: str, document: Any) -> Contents | None:
    """Return the request that is in a document, None if it is not OTLP."""
    for key, (signal, kind) in KINDS.items():
        if isinstance(document, dict) and key in document:
            try:
                request = parse_json(kind, orjson.dumps(document))
            except ValueError as error:
                raise ValueError(f"{where}: is not OTLP/JSON ({error}).") from error
            return Contents(signal, request.SerializeToString(), _count(request))
    return None


def _exported(where: str, document: Any) -> Iterator[Exported]:
    """Yield what a document of another trace store holds: one record, a list, or a page of them."""
    page = document.get("data") if isinstance(document, dict) else document
    rows = page if isinstance(page, list) else [document]
    for row in rows:
        format_ = next((one for one in FORMATS if isinstance(row, dict) and one.matches(row)), None)
        if format_ is None:
            raise ValueError(
                f"{where}: is JSON, but neither OTLP (it has neither resourceSpans nor "
                f"resourceLogs) nor an export of {', '.join(one.NAME for one in FORMATS)}."
            )
        yield from _read_row(where, format_, row)


def _read_row(where: str, format_: Format, row: Mapping[str, Any]) -> list[Exported]:
    try:
        return list(format_.read(row))
    except KeyError as error:
        raise ValueError(f"{where}: a record of {format_.NAME} lacks {error}.") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{where}: a record of {format_.NAME} cannot be read ({error})."
        ) from error


def _requests(spans: Sequence[ExportedSpan]) -> Iterator[Contents]:
    """Yield one request of the spans, or several if it is larger than `REQUEST_BYTES`."""
    request = _request(spans)
    if len(request.body) <= REQUEST_BYTES or len(spans) == 1:
        yield request
        return
    half = len(spans) // 2
    yield from _requests(spans[:half])
    yield from _requests(spans[half:])


def _request(spans: Iterable[ExportedSpan]) -> Contents:
    """Build one request of the spans, grouped by neighbours of the same resource and scope."""
    resources = [
        {
            "resource": {"attributes": key_values(resource)},
            "scopeSpans": [{"scope": {"name": scope}, "spans": [one.span for one in some]}],
        }
        for (resource, scope), some in groupby(spans, lambda one: (one.resource, one.scope))
    ]
    body = orjson.dumps({"resourceSpans": resources})
    request = parse_json(ExportTraceServiceRequest, body)
    return Contents("traces", request.SerializeToString(), _count(request))


def _protobuf(path: Path, data: bytes) -> Contents:
    is_protobuf = False
    for signal, kind in KINDS.values():
        try:
            request = kind.FromString(data)
        except DecodeError:
            continue
        is_protobuf = True
        if _fits(request):
            return Contents(signal, data, _count(request))
    if is_protobuf:
        raise ValueError(
            f"{path}: is protobuf but holds no OTLP traces or logs. Metrics are not stored."
        )
    raise ValueError(_not_protobuf(path, data))


def _records(request: Any) -> Iterator[Any]:
    """Yield the spans or log records of a request."""
    traces = isinstance(request, ExportTraceServiceRequest)
    for resource in request.resource_spans if traces else request.resource_logs:
        for scope in resource.scope_spans if traces else resource.scope_logs:
            yield from scope.spans if traces else scope.log_records


def _count(request: Any) -> int:
    return sum(1 for _ in _records(request))


def _fits(request: Any) -> bool:
    """Return whether the bytes are a request of this signal.

    Traces, logs and metrics have the same nesting, so one parses as another. Then the fields of a
    record have wrong wire types, and protobuf keeps them as unknown fields.
    """
    record = next(_records(request), None)
    if record is None:
        return False
    unknown: Any = UnknownFieldSet(record)
    return not any(field.field_number in record.DESCRIPTOR.fields_by_number for field in unknown)


def _not_protobuf(path: Path, data: bytes) -> str:
    """Return an error message: the file is truncated, or is not OTLP."""
    position = 0
    while data[position : position + 1] == RESOURCES:
        size, begin = _varint(data, position + 1)
        if begin + size > len(data):
            return (
                f"{path}: is cut off: a part of {size} bytes begins at byte {begin}, but the file "
                f"ends at byte {len(data)}. Export it again."
            )
        position = begin + size
    return f"{path}: is not OTLP: neither protobuf nor JSON. Give files as an OTLP exporter writes."


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a protobuf varint; return its value and the position after it."""
    value = shift = 0
    # 64 bits in groups of 7 are at most 10 bytes.
    for byte in data[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < CONTINUES:
            break
    return value, position
