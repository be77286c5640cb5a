"""OTLP requests made by hand."""

import os

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def trace_request(*names: str, **ids: bytes) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for name in names:
        span = scope.spans.add(name=name, start_time_unix_nano=1, end_time_unix_nano=2)
        span.trace_id = ids.get("trace_id", os.urandom(16))
        span.span_id = ids.get("span_id", os.urandom(8))
    return request
