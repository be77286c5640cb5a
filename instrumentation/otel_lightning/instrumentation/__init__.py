"""What lives in the agent's process: additions to OpenTelemetry's spans that learning needs.

Importing this loads nothing, because Python imports it at its start where a variable asks for
tracing, and because the collector reads `attributes` through it: the public names below are
imported when they are used. `LightningInstrumentor`, which needs the SDK, is in
`otel_lightning.instrumentation.instrumentor`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_lightning.instrumentation.identity import rollout
    from otel_lightning.instrumentation.rewards import evaluation_result

__all__ = ["evaluation_result", "rollout"]


def __getattr__(name: str) -> Any:
    if name == "evaluation_result":
        from otel_lightning.instrumentation.rewards import evaluation_result

        return evaluation_result
    if name == "rollout":
        from otel_lightning.instrumentation.identity import rollout

        return rollout
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
