"""Grafana Tempo, and Jaeger's newer API: OTLP inside of an object.

Tempo answers `/api/traces/ID` with `{"batches": […]}` and `/api/v2/traces/ID` with
`{"trace": {"resourceSpans": […]}}`; Jaeger answers `/api/v3/traces/ID` with `{"result": …}`.
Both follow protobuf's JSON mapping, which `otlp.json_encoding` reads too.

Source:
    `pkg/tempopb/tempo.proto` of grafana/tempo; `api_v3/query_service.proto` of
    jaegertracing/jaeger-idl.
"""

from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.trace_files.records import Exported, ExportedSpan, Json

NAME = "Tempo"


def matches(row: Json) -> bool:
    """Return whether this object holds the spans of a trace, by resource."""
    return isinstance(_resources(row), list)


def read(row: Json) -> Iterator[Exported]:
    """Yield the spans."""
    for resource in _resources(row):
        attributes = (resource.get("resource") or {}).get("attributes") or []
        of_resource = {one["key"]: _value(one["value"]) for one in attributes}
        former = resource.get("instrumentationLibrarySpans") or []
        for scope in resource.get("scopeSpans") or former:
            name = (scope.get("scope") or scope.get("instrumentationLibrary") or {}).get("name")
            for span in scope.get("spans") or []:
                yield ExportedSpan(span, of_resource, name or "")


def _resources(row: Json) -> Any:
    inner: Json = next(
        (row[key] for key in ("trace", "result") if isinstance(row.get(key), dict)), {}
    )
    return row.get("batches") or inner.get("resourceSpans") or inner.get("batches")


def _value(value: Json) -> Any:
    """Return an attribute's value, which `records` writes again."""
    if "arrayValue" in value:
        return [_value(one) for one in value["arrayValue"].get("values") or []]
    if "kvlistValue" in value:
        pairs = value["kvlistValue"].get("values") or []
        return {one["key"]: _value(one["value"]) for one in pairs}
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()), None)
