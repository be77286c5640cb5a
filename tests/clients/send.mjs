// Send COUNT spans with the JavaScript SDK: node send.mjs json|protobuf URL COUNT
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { OTLPTraceExporter as JsonExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as ProtobufExporter } from "@opentelemetry/exporter-trace-otlp-proto";

const [form, url, count] = process.argv.slice(2);
const exporter = new (form === "json" ? JsonExporter : ProtobufExporter)({ url });
const provider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter)] });
const tracer = provider.getTracer("tests");
for (let position = 0; position < Number(count); position++) {
  const span = tracer.startSpan("work");
  span.setAttribute("position", position);
  span.setAttribute("words", ["é", "b"]);
  span.addEvent("done", { ok: true });
  span.end();
}
await provider.shutdown();
