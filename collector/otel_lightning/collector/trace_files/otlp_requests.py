"""Requests of OTLP: from protobuf, from OTLP/JSON, and from records that other stores exported."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.otlp.json_encoding import parse_json
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.trace_files.records import ExportedLog, ExportedSpan, key_values

RESOURCES = b"\x0a"  # tag of field 1, length-delimited: the first byte of every OTLP request
CONTINUES = 0x80  # bit set in every byte of a varint except the last
KINDS: dict[str, tuple[Signal, Any]] = {
    "resourceSpans": ("traces", ExportTraceServiceRequest),
    "resourceLogs": ("logs", ExportLogsServiceRequest),
}


class Contents(NamedTuple):
    """One OTLP request from a file: its signal, protobuf bytes and number of records."""

    signal: Signal
    body: bytes
    records: int


class PlacedRecord(NamedTuple):
    """A span or log record of another store, its OTLP/JSON, and where it stands in a file."""

    where: str
    exported: ExportedSpan | ExportedLog
    body: bytes


class _Lists(NamedTuple):
    """The names of the lists that a request of one signal consists of, and its records."""

    key: str
    scopes: str
    records: str
    noun: str


LISTS = {
    ExportedSpan: _Lists("resourceSpans", "scopeSpans", "spans", "span"),
    ExportedLog: _Lists("resourceLogs", "scopeLogs", "logRecords", "log record"),
}


def placed(where: str, exported: ExportedSpan | ExportedLog) -> PlacedRecord:
    """Write a record as OTLP/JSON.

    Raises:
        ValueError: If it has a text that is not Unicode, or is nested too deeply.
    """
    try:
        return PlacedRecord(where, exported, orjson.dumps(exported[0]))
    except TypeError as error:
        noun = LISTS[type(exported)].noun
        raise ValueError(f"{where}: the {noun} cannot be read ({error}).") from error


def from_records(some: Sequence[PlacedRecord]) -> Contents:
    """Build one request of records of one kind, grouped by neighbours of one resource and scope.

    Raises:
        ValueError: If a record is invalid; the message says which.
    """
    key, scopes, records, noun = LISTS[type(some[0].exported)]
    resources = [
        {
            "resource": {"attributes": key_values(resource)},
            scopes: [
                {"scope": {"name": scope}, records: [orjson.Fragment(one.body) for one in grouped]}
            ],
        }
        for (resource, scope), grouped in groupby(
            some, lambda one: (one.exported.resource, one.exported.scope)
        )
    ]
    signal, kind = KINDS[key]
    try:
        request = parse_json(kind, orjson.dumps({key: resources}))
    except (ValueError, TypeError) as error:
        if len(some) > 1:
            for one in some:
                from_records([one])  # the first invalid one raises
        raise ValueError(f"{some[0].where}: the {noun} cannot be read ({error}).") from error
    return Contents(signal, request.SerializeToString(), _count(request))


def from_json(where: str, document: Any) -> Contents | None:
    """Return the request that is in a document, None if it is not OTLP.

    Raises:
        ValueError: If it is invalid; the message says where and why.
    """
    for key, (signal, kind) in KINDS.items():
        if isinstance(document, dict) and key in document:
            try:
                request = parse_json(kind, orjson.dumps(document))
            except ValueError as error:
                raise ValueError(f"{where}: is not OTLP/JSON ({error}).") from error
            return Contents(signal, request.SerializeToString(), _count(request))
    return None


def from_protobuf(path: Path, data: bytes) -> Contents:
    """Return the request that a file is.

    Raises:
        ValueError: If it is none, or is cut off; the message says which.
    """
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
    return (
        f"{path}: is not OTLP, neither protobuf nor JSON, and no export of a trace store. "
        "`lightning-ingest load --help` lists what can be read."
    )


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
