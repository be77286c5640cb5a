"""The instrumentor that `opentelemetry-instrument` finds and starts beside all the others."""

import logging
from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.trace import TracerProvider

from otel_lightning.instrumentation import arms, tokens
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.processor import LightningSpanProcessor

_logger = logging.getLogger(__name__)


class LightningInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Add what learning needs to the spans of other instrumentations.

    It makes no spans. In code, call `instrument()` before the LLM instrumentor's, so that token
    ids are read inside of its spans; `opentelemetry-instrument` sees to that by itself.
    """

    _undo: ExitStack | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no packages: there is something to stamp in any agent."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        self._undo = ExitStack()
        provider = kwargs.get("tracer_provider") or trace.get_tracer_provider()
        for start in (_stamp_spans, _record_tokens, _record_arms):
            start(self._undo, provider)

    def _uninstrument(self, **kwargs: Any) -> None:
        del kwargs
        if self._undo:
            never_raise(self._undo.close)()


@never_raise
def _stamp_spans(undo: ExitStack, provider: TracerProvider) -> None:
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        _logger.warning(
            "No OpenTelemetry SDK is set up in this process (its tracer provider is a %s), so "
            "spans carry no rollout ids or arms. Run the agent under opentelemetry-instrument, "
            "or pass tracer_provider=.",
            type(provider).__name__,
        )
        return
    processor = LightningSpanProcessor()
    add(processor)
    undo.callback(processor.shutdown)


@never_raise
def _record_tokens(undo: ExitStack, _provider: TracerProvider) -> None:
    tokens.capture_tokens()
    tokens.switch(on=True)
    undo.callback(tokens.switch, on=False)


@never_raise
def _record_arms(undo: ExitStack, _provider: TracerProvider) -> None:
    try:
        undo.callback(arms.register())
    except ImportError:
        _logger.debug("OpenFeature is not installed: no arms to record.")
