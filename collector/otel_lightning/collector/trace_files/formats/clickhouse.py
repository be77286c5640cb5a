"""ClickHouse: the table `otel_traces` of the Collector's ClickHouse exporter, and of ClickStack.

Read as Parquet, CSV with names, or `JSONEachRow`. Attributes are maps of text or, with the
exporter's `json` setting, ClickHouse's JSON, which makes objects of names with dots.

Source:
    `exporter/clickhouseexporter` of open-telemetry/opentelemetry-collector-contrib.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import Exported, ExportedSpan, Json
from otel_lightning.collector.trace_files.written_values import flat, structure

NAME = "ClickHouse"
SPAN = frozenset({"TraceId", "SpanId", "SpanName", "SpanAttributes"})
SCOPE = "otel.scope.name"
"""The attribute that older versions of the exporter write, which have no column for the scope."""
EVENT = ("Timestamp", "Name", "Attributes")
LINK = ("TraceId", "SpanId", "TraceState", "Attributes")


def matches(row: Json) -> bool:
    """Tell whether this is a row of `otel_traces`."""
    return row.keys() >= SPAN


def read(row: Json) -> Iterator[Exported]:
    """Yield the span of a row."""
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
    resource = {"service.name": row.get("ServiceName"), **_attributes(row["ResourceAttributes"])}
    yield ExportedSpan(span, resource, row.get("ScopeName") or scope or "")


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
