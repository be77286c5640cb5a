"""Small OTLP/JSON files that reproduce what hard use found, as records and as derived rows."""

import json
from pathlib import Path

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, LlmCall, Span
from support.captures import as_texts, to_span

FOUND = Path(__file__).parents[1] / "data" / "found"
IDS = ("traceId", "spanId", "parentSpanId")


def found_spans(name: str) -> list[Span]:
    """Return the spans of one file. Its ids are hexadecimal, where protobuf's JSON has base64."""
    request = json.loads((FOUND / f"{name}.json").read_text())
    hexadecimal = [
        {key: span.pop(key) for key in IDS if key in span}
        for group in request["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]
    known = Parse(json.dumps(request), ExportTraceServiceRequest())
    spans = [
        to_span(span, as_texts(group.resource.attributes), scope.scope.name)
        for group in known.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    return [
        span._replace(
            trace_id=ids["traceId"],
            span_id=ids["spanId"],
            parent_span_id=ids["parentSpanId"] or None,
        )
        for span, ids in zip(spans, hexadecimal, strict=True)
    ]


def derived(name: str) -> Derived:
    """Return the rows of one file."""
    return derive(found_spans(name), [])


def by_span(rows: Derived) -> dict[str, LlmCall]:
    """Return the model calls by the first four characters of their span ids."""
    return {call.span_id[:4]: call for call in rows.llm_calls}
