"""ClickHouse: the tables `otel_traces` and `otel_logs` of the Collector's exporter, and ClickStack.

Read as Parquet, CSV with names, or `JSONEachRow`. Attributes are maps of text or, with the
exporter's `json` setting, ClickHouse's JSON, which makes objects of names with dots.

Source:
    `exporter/clickhouseexporter` of open-telemetry/opentelemetry-collector-contrib.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import Exported, ExportedLog, ExportedSpan, Json
from otel_lightning.collector.trace_files.written_values import flat, structure

NAME = "ClickHouse"
SPAN = frozenset({"TraceId", "SpanId", "SpanName", "SpanAttributes"})
LOG = frozenset({"TraceId", "SpanId", "Body", "LogAttributes"})
SCOPE = "otel.scope.name"
"""The attribute that older versions of the exporter write, which have no column for the scope."""
EVENT = ("Timestamp", "Name", "Attributes")
LINK = ("TraceId", "SpanId", "TraceState", "Attributes")


def matches(row: Json) -> bool:
    """Return whether this is a row of `otel_traces` or `otel_logs`."""
    return row.keys() >= SPAN or row.keys() >= LOG


def read(row: Json) -> Iterator[Exported]:
    """Yield the span or log record of a row."""
    yield _span(row) if row.keys() >= SPAN else _log(row)


def _span(row: Json) -> ExportedSpan:
    start_ns = records.nanoseconds(row["Timestamp"])
    attributes = _attributes(row["SpanAttributes"])
    scope = attributes.pop(SCOPE, None)
    parent = row.get("ParentSpanId")
    span = records.span(
        trace_id=records.trace_id(row["TraceId"]),
        span_id=records.span_id(row["SpanId"]),
        parent_id=parent and records.span_id(parent),
        name=row["SpanName"] or "",
        start_ns=start_ns,
        end_ns=start_ns + int(row["Duration"]),
        attributes=attributes,
        status=records.status_number(row.get("StatusCode")),
        message=row.get("StatusMessage"),
        events=[_event(one) for one in _nested(row, "Events", EVENT)],
        links=[_link(one) for one in _nested(row, "Links", LINK)],
        trace_state=row.get("TraceState"),
        kind=records.kind_number(row.get("SpanKind")),
    )
    return ExportedSpan(span, _resource(row), row.get("ScopeName") or scope or "")


def _log(row: Json) -> ExportedLog:
    """Return the record of a row. Bodies and attributes with several values are JSON texts.

    The table has the time at which the record was observed only where it has no time of its own.
    """
    trace, span = row["TraceId"], row["SpanId"]
    log = records.log(
        time_ns=records.nanoseconds(row["Timestamp"]),
        trace_id=trace and records.trace_id(trace),
        span_id=span and records.span_id(span),
        # Older versions of the exporter have no column for the name.
        event_name=row.get("EventName"),
        severity=row.get("SeverityText"),
        severity_number=int(row.get("SeverityNumber") or 0),
        body=row["Body"] or None,
        attributes=_attributes(row["LogAttributes"]),
        flags=int(row.get("TraceFlags") or 0),
    )
    return ExportedLog(log, _resource(row), row.get("ScopeName") or "")


def _resource(row: Json) -> dict[str, Any]:
    return {"service.name": row.get("ServiceName"), **_attributes(row["ResourceAttributes"])}


def _attributes(written: Any) -> dict[str, Any]:
    attributes = structure(written) or {}
    if not isinstance(attributes, Mapping):
        raise TypeError(f"attributes are '{str(written)[:40]}', which is no map")
    return flat(attributes)


def _nested(row: Json, name: str, fields: tuple[str, ...]) -> list[Json]:
    """Return the objects of a nested column, which is one column of lists for each field."""
    if name in row:  # with ClickHouse's setting `flatten_nested=0`
        return structure(row[name]) or []
    columns = [structure(row.get(f"{name}.{field}")) or [] for field in fields]
    return [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]


def _event(event: Json) -> Json:
    time_ns = records.nanoseconds(event["Timestamp"])
    return records.event(event["Name"], time_ns, _attributes(event["Attributes"]))


def _link(link: Json) -> Json:
    return {
        "traceId": records.trace_id(link["TraceId"]),
        "spanId": records.span_id(link["SpanId"]),
        "traceState": link["TraceState"] or "",
        "attributes": records.key_values(_attributes(link["Attributes"])),
    }
