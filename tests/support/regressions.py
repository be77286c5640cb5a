"""Small OTLP/JSON files whose spans an earlier version read wrongly, one file for each fault."""

import json
from pathlib import Path

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, LlmCall, Span
from support.captures import as_texts, to_span

REGRESSIONS = Path(__file__).parents[1] / "data" / "regressions"
IDS = ("traceId", "spanId", "parentSpanId")


def spans_of(name: str) -> list[Span]:
    """Return the spans of one file. Its ids are hexadecimal, where protobuf's JSON has base64."""
    request = json.loads((REGRESSIONS / f"{name}.json").read_text())
    hexadecimal = [
        {key: span.pop(key) for key in IDS if key in span}
        for group in request["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]
    parsed = Parse(json.dumps(request), ExportTraceServiceRequest())
    spans = [
        to_span(span, as_texts(group.resource.attributes), scope.scope.name)
        for group in parsed.resource_spans
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


def rows_of(name: str) -> Derived:
    """Return the rows of one file."""
    return derive(spans_of(name), [])


def by_span(rows: Derived) -> dict[str, LlmCall]:
    """Return the model calls by the first four characters of their span ids."""
    return {call.span_id[:4]: call for call in rows.llm_calls}
