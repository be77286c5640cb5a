"""Runs in the agent's process: adds to OpenTelemetry's spans the data that learning needs.

Importing this package imports nothing more, for two reasons: the `.pth` file of our wheel imports
it at every start of Python with tracing, and the collector needs only `attributes`. So the public
names below are imported on first use. `LightningInstrumentor`, which needs the SDK, is in
`otel_lightning.instrumentation.instrumentor`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, which takes longer to import than this package
if TYPE_CHECKING:
    from typing import Any

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
