"""Recorded captures as records: what exporters of real instrumentations sent, and the truth.

A second writing of the rules that the decoder follows, with the official protobuf classes.
"""

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from otel_lightning.collector.derive.rows import Event, Log, Span


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind else None


def is_text_of(text: str | None, value: AnyValue) -> bool:
    """Whether a stored text is that of an attribute's value on the wire."""
    if value.WhichOneof("value") in ("string_value", "bytes_value", None):
        return text == plain(value)
    return text is not None and json.loads(text) == plain(value)


def as_text(value: AnyValue) -> str | None:
    inner = plain(value)
    if inner is None or isinstance(inner, str):
        return inner
    return json.dumps(inner, ensure_ascii=False)


def as_texts(pairs: Any) -> dict[str, str]:
    texts = {pair.key: as_text(pair.value) for pair in pairs}
    return {key: text for key, text in texts.items() if text is not None}


def read_spans(path: Path) -> list[Span]:
    if not path.exists():  # an instrumentation that recorded nothing at all
        return []
    request = ExportTraceServiceRequest.FromString(path.read_bytes())
    sent = [
        to_span(span, as_texts(group.resource.attributes), scope.scope.name)
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    # Of a span that was sent several times while it ran, the last state.
    last: dict[tuple[str, str], Span] = {}
    for span in sent:
        latest = last.setdefault((span.trace_id, span.span_id), span)
        if (span.end_ns or 0) > (latest.end_ns or 0):
            last[span.trace_id, span.span_id] = span
    return list(last.values())


def to_span(span: OtlpSpan, resource: dict[str, str], scope_name: str) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex() or None,
        name=span.name,
        kind=OtlpSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        start_ns=span.start_time_unix_nano or None,
        end_ns=span.end_time_unix_nano or None,
        status_code=("UNSET", "OK", "ERROR")[span.status.code],
        status_message=span.status.message or None,
        scope_name=scope_name or None,
        resource=resource,
        attributes=as_texts(span.attributes),
        events=tuple(
            Event(event.name, event.time_unix_nano or None, as_texts(event.attributes))
            for event in span.events
        ),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )


def read_logs(path: Path) -> list[Log]:
    if not path.exists():
        return []
    request = ExportLogsServiceRequest.FromString(path.read_bytes())
    return [
        to_log(record, as_texts(group.resource.attributes), scope.scope.name)
        for group in request.resource_logs
        for scope in group.scope_logs
        for record in scope.log_records
    ]


def to_log(record: LogRecord, resource: dict[str, str], scope_name: str) -> Log:
    attributes = as_texts(record.attributes)
    return Log(
        time_ns=record.time_unix_nano or record.observed_time_unix_nano or None,
        trace_id=record.trace_id.hex() or None,
        span_id=record.span_id.hex() or None,
        event_name=record.event_name or attributes.get("event.name"),
        body=as_text(record.body),
        attributes=attributes,
        resource=resource,
        scope_name=scope_name or None,
        observed_ns=record.observed_time_unix_nano or None,
    )


class Capture(NamedTuple):
    """What was sent in one scenario, and what the provider and the tools saw."""

    truth: dict[str, Any]
    spans: list[Span]
    logs: list[Log]


@cache
def load(truth: Path) -> Capture:
    stem = truth.name.removesuffix(".truth.json")
    return Capture(
        json.loads(truth.read_text()),
        read_spans(truth.with_name(f"{stem}.otlp.pb")),
        read_logs(truth.with_name(f"{stem}.logs.pb")),
    )
