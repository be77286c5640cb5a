"""The instrumentor that `opentelemetry-instrument` finds and starts together with the others."""

import logging
import os
from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.trace import TracerProvider

from otel_lightning.instrumentation import (
    arms,
    bundled,
    bundled_streams,
    client,
    delivery,
    encoding,
    ids,
    logs,
    missing,
    model_call,
    overhead,
    privacy,
    propagation,
    providers,
    quiet,
    unrecorded,
    variables,
)
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.processor import LightningSpanProcessor
from otel_lightning.instrumentation.tools import InferredTools

_logger = logging.getLogger(__name__)


def prepare() -> None:
    """Run the steps that must precede every instrumentor; OpenTelemetry's loader calls it first."""
    privacy.share_switch()
    bundled.load_when_imported()
    client.wrap_when_imported()
    missing.say_what_is_missing()
    _name_misspelt_variables()


class LightningInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Add the data that learning needs to the spans of other instrumentations.

    It creates spans only for tools that the agent runs itself, and for the few model calls that the
    bundled OpenAI instrumentation leaves out. If you call `instrument()` in code,
    call it before the LLM instrumentor's, so that our wrappers in the client are the inner ones.
    `opentelemetry-instrument` ensures this order by itself.
    """

    _undo: ExitStack | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no packages: this instrumentor is useful in every agent."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return  # the loader starts every instrumentor all the same: requests stay unchanged
        privacy.share_switch()
        self._undo = ExitStack()
        provider = kwargs.get("tracer_provider") or trace.get_tracer_provider()
        # Each step has a guard of its own, so that a failure costs only that step. The ids come
        # first, since spans may start at once.
        for start in (
            _make_ids,
            _encode_quickly,
            _save_overhead,
            _complete_the_bundled,
            _limit_exit_time,
            _add_processor_and_wrappers,
            _redact_logs,
            _record_arms,
            _propagate_context,
        ):
            start(self._undo, provider)

    def _uninstrument(self, **kwargs: Any) -> None:
        del kwargs
        if self._undo:
            never_raise(self._undo.close)()


@never_raise
def _name_misspelt_variables() -> None:
    for name, meant in variables.corrections(os.environ):
        _logger.warning("%s", variables.warning(name, meant))


@never_raise
def _make_ids(undo: ExitStack, _provider: TracerProvider) -> None:
    undo.callback(ids.use_system_random())
    undo.callback(quiet.drop_marker_warnings())


@never_raise
def _encode_quickly(undo: ExitStack, _provider: TracerProvider) -> None:
    encoding.encode_quickly(undo)


@never_raise
def _save_overhead(undo: ExitStack, _provider: TracerProvider) -> None:
    overhead.save(undo)


@never_raise
def _complete_the_bundled(undo: ExitStack, _provider: TracerProvider) -> None:
    bundled.keep_iterators(undo)
    bundled_streams.keep_streams(undo)


@never_raise
def _limit_exit_time(undo: ExitStack, _provider: TracerProvider) -> None:
    delivery.limit_exit_time(undo)


@never_raise
def _add_processor_and_wrappers(undo: ExitStack, provider: TracerProvider) -> None:
    if not hasattr(provider, "add_span_processor"):
        _logger.warning(
            "No OpenTelemetry SDK is set up in this process (its tracer provider is a %s), so "
            "spans carry no rollout ids or arms. Run the agent under opentelemetry-instrument, "
            "or pass tracer_provider=.",
            type(provider).__name__,
        )
        return
    tracer = provider.get_tracer("otel_lightning.instrumentation")
    inferred_tools = InferredTools(tracer)
    unrecorded.switch_on(undo, tracer)
    processor = LightningSpanProcessor(inferred_tools)
    providers.put_first(provider, processor)
    undo.callback(processor.shutdown)
    if provider is trace.get_tracer_provider():
        providers.allow_replacement(undo, provider)
    # Before the last delivery, so that spans of open streams are among what is delivered.
    delivery.before_finish.append(model_call.end_open)
    undo.callback(delivery.before_finish.remove, model_call.end_open)
    client.wrap_when_imported()
    client.switch_on(inferred_tools)
    undo.callback(client.switch_off)


@never_raise
def _redact_logs(undo: ExitStack, _provider: TracerProvider) -> None:
    logs.redact_logs(undo)


@never_raise
def _propagate_context(undo: ExitStack, _provider: TracerProvider) -> None:
    propagation.propagate_context(undo)


@never_raise
def _record_arms(undo: ExitStack, _provider: TracerProvider) -> None:
    try:
        undo.callback(arms.register())
    except ImportError:
        _logger.debug("OpenFeature is not installed: no arms to record.")
