"""Send COUNT spans with the Python SDK that is installed: send.py grpc|http ENDPOINT COUNT."""

import sys
from importlib import import_module

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

protocol, endpoint, count = sys.argv[1:]
module = import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter")
options = {"insecure": True} if protocol == "grpc" else {}
provider = TracerProvider()
provider.add_span_processor(
    BatchSpanProcessor(module.OTLPSpanExporter(endpoint=endpoint, **options))
)
tracer = provider.get_tracer("tests")
for position in range(int(count)):
    with tracer.start_as_current_span("work") as span:
        span.set_attribute("position", position)
        span.set_attribute("words", ["é", "b"])
        span.add_event("done", {"ok": True})
    if position % 500 == 0:
        provider.force_flush()  # the queue drops what exceeds it
provider.shutdown()
