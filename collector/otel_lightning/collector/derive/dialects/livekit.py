"""LiveKit Agents: model calls in the conventions' keys, each with its attempts as spans below it.

The span of a call ends well, with the reason `stop`, even if no attempt was answered. So a failed
attempt is read as a record of its own, which only has the error; it is merged with the call if that
has no answer. In Python, executions of tools have keys of LiveKit's own only.
"""

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.dialects.semconv import tools as semconv_tools
from otel_lightning.collector.derive.messages import token_counts
from otel_lightning.collector.derive.rows import LlmCall, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "livekit"
RANK = 65
METRICS = "lk.llm_metrics"
"""The key of a call that sums up the attempts."""
ATTEMPT = "llm_request_run"
"""The name of the span of an attempt; those of other models, such as speech, end alike."""
TOOL = "lk.function_tool."
CONTENT = "lk.pii.function_tool."
"""The prefix of a tool's arguments and output, which was `TOOL` before 2026."""


def matches(span: Span) -> bool:
    """Return whether the span is a model call of LiveKit's, an attempt of one, or a tool's."""
    keys = span.attributes
    is_tool = f"{TOOL}name" in keys and "gen_ai.tool.name" not in keys
    return METRICS in keys or "lk.retry_count" in keys or is_tool


def read(span: Span) -> LlmCall | ToolCall | None:
    """Read a call, a tool, or an attempt that failed; None for any other attempt."""
    if METRICS in span.attributes:
        return _read_call(span)
    if f"{TOOL}name" in span.attributes:
        return _read_tool(span)
    if span.name != ATTEMPT or not span_rows.failed(span):
        return None
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    return span_rows.completed(call)


def _read_call(span: Span) -> LlmCall:
    call = semconv.read_call(span, NAME, "chat")
    metrics = json_text.as_object(json_text.parse(span.attributes[METRICS]))
    call.response_id = call.response_id or metrics.get("request_id") or None
    cached = reading.count(metrics.get("prompt_cached_tokens"))
    token_counts.fill_usage(call, token_counts.Usage(None, None, cached or None, None, None))
    if not (call.output_messages or call.output_tokens):
        call.finish_reason = None
    return call


def _read_tool(span: Span) -> ToolCall:
    def field(name: str) -> str | None:
        return reading.text(span.attributes, f"{CONTENT}{name}", f"{TOOL}{name}")

    tool = span_rows.tool_call(
        span,
        field("name"),
        tool_call_id=field("id"),
        arguments=json_text.parse(field("arguments")),
        result=field("output"),
    )
    if field("is_error") == "true":
        tool.error_type = tool.error_type or semconv_tools.TOOL_ERROR
    return tool
