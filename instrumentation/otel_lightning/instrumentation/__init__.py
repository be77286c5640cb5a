"""What lives in the agent's process: additions to OpenTelemetry's spans that learning needs.

Importing this stays cheap, because the collector reads `attributes` through it too:
`LightningInstrumentor`, which needs the SDK, is in `otel_lightning.instrumentation.instrumentor`.
"""

from otel_lightning.instrumentation.rewards import evaluation_result

__all__ = ["evaluation_result"]
