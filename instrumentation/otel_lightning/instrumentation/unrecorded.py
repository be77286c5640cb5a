"""Record model calls that the bundled OpenAI instrumentation leaves out or ends too early.

- A stream of `with_raw_response`: on chat completions and completions, the instrumentation ends its
  span before the agent reads the stream, so we delay that end. On Responses it makes no span.
- On Responses, it makes no span for a call that was cancelled or interrupted, nor for an answer
  whose status is not `completed`, such as one that reached `max_output_tokens`.

We make a missing span with the instrumentation's own functions, so it has the same attributes.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Final

from opentelemetry.context import get_value
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from otel_lightning.instrumentation.bundled_requests import WRAPPERS
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.model_call import ModelCall, is_bundled

_SUPPRESSED: Final = "suppress_instrumentation"
_WAITING: Final = ("queued", "in_progress")
"""Statuses of an answer that the agent retrieves later; the instrumentation records that."""

End = Callable[[BaseException | None], None]
"""Ends the record of a stream, with the error that ended the stream, if any."""

_tracers: list[Tracer] = []
"""The one tracer that makes the missing spans; empty while recording is off."""


def switch_on(undo: ExitStack, tracer: Tracer) -> None:
    """Start recording.

    Args:
        undo: Receives the callback that reverts this.
        tracer: Makes the missing spans.
    """
    _tracers[:] = [tracer]
    undo.callback(_tracers.clear)


@never_raise
def give_up(call: ModelCall, error: BaseException) -> None:
    """Record a call that was cancelled or interrupted.

    The bundled instrumentation ends its span only for an `Exception`. Other instrumentations end
    theirs.

    Args:
        call: The call that ends without an answer.
        error: `asyncio.CancelledError`, `KeyboardInterrupt` or `SystemExit`.
    """
    if call.span is None:
        _record_error(call, error)
    elif call.span.is_recording() and is_bundled(call.span):
        fail(call.span, error)
        call.span.end()


@never_raise
def note_whole(call: ModelCall, response: Any) -> None:
    """Record an answer of Responses that is neither complete nor waiting to be retrieved.

    Args:
        call: The call that received the answer.
        response: The answer, as an object of the openai client.
    """
    if call.endpoint != "responses" or response.status in ("completed", *_WAITING, None):
        return
    if (record := _begin(call)) is not None:
        record.add(response)
        record.end(None)


@never_raise
def follow(call: ModelCall) -> End | None:
    """Keep the span of a raw stream open until the stream ends.

    Args:
        call: The call that received the stream.

    Returns:
        The function to call at the end of the stream; None if there is nothing to do.
    """
    if call.endpoint == "responses":
        record = _begin(call)
        return None if record is None else record.end_of_stream
    return _hold_open(call.span) if call.span is not None and is_bundled(call.span) else None


def _hold_open(span: Any) -> End:
    """Delay the end of a span: its own `end` does nothing until the stream has ended."""
    end_calls: list[bool] = []
    # On the instance, which hides the method of the class until it is removed.
    vars(span)["end"] = lambda *_args, **_kwargs: end_calls.append(True)

    @never_raise
    def end(error: BaseException | None) -> None:
        vars(span).pop("end", None)
        if error is not None:
            fail(span, error)
        if end_calls and span.is_recording():
            span.end()

    return end


def fail(span: Any, error: BaseException) -> None:
    """Write to a span the error that ended its call."""
    kind = type(error).__name__
    span.set_attribute("error.type", kind)
    ended = str(error) or "the call ended without an answer"
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {ended}"))


def _record_error(call: ModelCall, error: BaseException) -> None:
    record = _begin(call)
    if record is not None:
        record.end(error)


class _Record:
    """A span for one call of Responses, filled by the functions of the bundled instrumentation."""

    def __init__(self, call: ModelCall, module: Any, span: Any) -> None:
        self._call = call
        self._module = module
        self._span = span
        request = module._sanitize_sentinel_values(dict(call.request))  # noqa: SLF001
        prepared = module.prepare_kwargs_for_shared_attributes(request)
        module._set_request_attributes(span, prepared, call.resource)  # noqa: SLF001
        # The instrumentation's own reader of streams: it writes the attributes of the answer and
        # ends the span.
        self._stream = module.ResponseStream(
            span=span,
            response=SimpleNamespace(),
            start_time=call.started_ns,
            request_kwargs=request,
        )

    def add(self, response: Any) -> None:
        """Take the answer."""
        self._stream._process_chunk(SimpleNamespace(response=response))  # noqa: SLF001
        self._stream._output_text = getattr(response, "output_text", "")  # noqa: SLF001

    def end(self, error: BaseException | None) -> None:
        """Write the received part of the answer to the span, and end it."""
        if error is None:
            self._stream._process_complete_response()  # noqa: SLF001
            return
        self._module.set_data_attributes(self._stream._traced_data, self._span)  # noqa: SLF001
        fail(self._span, error)
        self._span.end()
        self._stream._cleanup_completed = True  # noqa: SLF001

    @never_raise
    def end_of_stream(self, error: BaseException | None) -> None:
        """End the span of a stream with the last answer that its events had."""
        if self._call.answer.whole is not None:
            self.add(self._call.answer.whole)
        self.end(error)


def _begin(call: ModelCall) -> _Record | None:
    """Start the span of a call of Responses, if nothing but the bundled instrumentation would."""
    module: Any = sys.modules.get(WRAPPERS)
    if call.endpoint != "responses" or call.span is not None or not _tracers or module is None:
        return None
    if get_value(_SUPPRESSED, call.context) or not _is_on():
        return None
    span = _tracers[0].start_span(
        module.SPAN_NAME, call.context, kind=SpanKind.CLIENT, start_time=call.started_ns
    )
    call.adopt(span)
    call.is_own_span = True
    return _Record(call, module, span)


def _is_on() -> bool:
    instrumentation = sys.modules["opentelemetry.instrumentation.openai"]
    # Not `OpenAIInstrumentor()`: each call sets its options back to their defaults.
    instrumentor = vars(instrumentation)["OpenAIInstrumentor"]._instance  # noqa: SLF001
    return instrumentor is not None and bool(instrumentor.is_instrumented_by_opentelemetry)
