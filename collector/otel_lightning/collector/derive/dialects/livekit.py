"""LiveKit Agents: model calls in the conventions' keys, each with its attempts as spans below it.

The span of a call ends well, with the reason `stop`, even if no attempt was answered. So a failed
attempt is read as a record of its own, which only has the error; it is merged with the call if that
has no answer.
"""

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.rows import LlmCall, Span

NAME = "livekit"
RANK = 65
METRICS = "lk.llm_metrics"
"""The key of a call that sums up the attempts."""
ATTEMPT = "llm_request_run"
"""The name of the span of an attempt; those of other models, such as speech, end alike."""


def matches(span: Span) -> bool:
    """Tell whether the span is a model call of LiveKit's, or an attempt of one."""
    return METRICS in span.attributes or "lk.retry_count" in span.attributes


def read(span: Span) -> LlmCall | None:
    """Read a call, or an attempt that failed; None for any other attempt."""
    if METRICS in span.attributes:
        return _read_call(span)
    if span.name != ATTEMPT or not span_rows.failed(span):
        return None
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    return span_rows.completed(call)


def _read_call(span: Span) -> LlmCall:
    call = semconv.read_call(span, NAME, "chat")
    if not (call.output_messages or call.output_tokens):
        call.finish_reason = None
    return call
