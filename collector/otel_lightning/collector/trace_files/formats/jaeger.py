"""Jaeger: a trace as its page downloads it and as `/api/traces` answers.

`/api/v3/traces` answers with OTLP inside of an object, which `tempo.py` reads.

Source:
    `model/json/model.go` of jaegertracing/jaeger; OpenTelemetry's "OpenTelemetry to Jaeger
    Transformation".
"""

from collections.abc import Iterator, Mapping
from typing import Any

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import Exported, ExportedSpan, Json

NAME = "Jaeger"
MICROSECOND = 1000  # nanoseconds
KINDS = {name.lower(): number for number, name in enumerate(records.KINDS)}
SCOPES = ("otel.scope.name", "otel.library.name")
"""The tag with the name of the scope, today's and the former."""
FIELDS = frozenset({"span.kind", "otel.status_code", "otel.status_description", "error", *SCOPES})
"""Tags that are fields of a span in OpenTelemetry."""


def matches(row: Json) -> bool:
    """Return whether this is a trace of Jaeger."""
    return {"traceID", "spans", "processes"} <= row.keys()


def read(row: Json) -> Iterator[Exported]:
    """Yield the spans of a trace."""
    processes = {name: _process(one) for name, one in row["processes"].items()}
    for one in row["spans"]:
        yield _span(one, processes[one["processID"]])


def _process(process: Json) -> Json:
    return {"service.name": process["serviceName"], **_tags(process.get("tags"))}


def _span(one: Json, resource: Json) -> ExportedSpan:
    tags = _tags(one.get("tags"))
    start_ns = int(one["startTime"]) * MICROSECOND
    code = tags.get("otel.status_code")
    failed = records.ERROR if tags.get("error") in (True, "true") else 0
    span = records.span(
        trace_id=one["traceID"].zfill(2 * records.TRACE_BYTES),
        span_id=one["spanID"].zfill(2 * records.SPAN_BYTES),
        parent_id=_parent(one),
        name=one["operationName"],
        start_ns=start_ns,
        end_ns=start_ns + int(one["duration"]) * MICROSECOND,
        attributes={key: value for key, value in tags.items() if key not in FIELDS},
        status=records.status_number(code) if code else failed,
        message=tags.get("otel.status_description"),
        events=[_event(log) for log in one.get("logs") or []],
        kind=KINDS.get(str(tags.get("span.kind")), records.INTERNAL),
    )
    scope = next((tags[name] for name in SCOPES if name in tags), "")
    return ExportedSpan(span, resource, scope)


def _parent(one: Json) -> str | None:
    """Return the id of the parent: the first span of the same trace that it is a child of."""
    for reference in one.get("references") or []:
        if reference["traceID"] == one["traceID"] and reference["refType"] == "CHILD_OF":
            return str(reference["spanID"]).zfill(2 * records.SPAN_BYTES)
    return None


def _event(log: Json) -> Json:
    fields = _tags(log.get("fields"))
    name = str(fields.pop("event", ""))
    return records.event(name, int(log["timestamp"]) * MICROSECOND, fields)


def _tags(tags: Any) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in tags or [] if isinstance(tag, Mapping)}
