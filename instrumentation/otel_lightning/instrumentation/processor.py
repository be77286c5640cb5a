"""Our span processor: stamps each span at its start with what only the running context knows."""

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from otel_lightning.instrumentation import arms
from otel_lightning.instrumentation.genai import is_genai
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.identity import current_ids


class LightningSpanProcessor(SpanProcessor):
    """Stamp spans with the rollout, the task and the arms in force; it exports nothing.

    OpenTelemetry cannot take a processor away again, so `shutdown` makes it do nothing.
    """

    def __init__(self) -> None:
        self._running = True

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Stamp a span that has just started."""
        if self._running:
            _stamp(span, parent_context)

    def shutdown(self) -> None:
        """Stamp no further spans."""
        self._running = False


@never_raise
def _stamp(span: Span, parent_context: Context | None) -> None:
    present = span.attributes or {}
    for name, value in current_ids(parent_context).items():
        if name not in present:
            span.set_attribute(name, value)
    if _needs_arms(span):
        arms.stamp(span)


def _needs_arms(span: Span) -> bool:
    # Some instrumentations set their attributes late; the span that begins the trace here
    # then carries the arms for those below it.
    begins_here = span.parent is None or span.parent.is_remote
    return begins_here or is_genai(span.attributes)
