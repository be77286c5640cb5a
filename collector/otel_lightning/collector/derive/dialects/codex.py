"""OpenAI's Codex: the model, token counts and errors of each request, and executions of tools.

Several spans tell of one request: `TURN` names the model, a `RECEIVED` below it has the counts, and
a `SENT` below it tells how the server refused it. Each becomes a call, and `duplicates` merges
them. Messages are in no span. What a tool was given and returned is in a log record only.
"""

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.rows import Attributes, LlmCall, Reader, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "codex"
RANK = 65
TARGET = "target"
"""The key of the Rust module that wrote a span."""
TURN, RECEIVED = "try_run_sampling_request", "handle_responses"
SENT, DISPATCHED = "endpoint_session.stream_encoded_json_with", "dispatch_tool_call_with_state"
COUNTED = "gen_ai.usage.input_tokens"
COUNTS = {
    "input_tokens": COUNTED,
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_creation_input_tokens": "gen_ai.usage.cache_write.input_tokens",
    "reasoning_tokens": "codex.usage.reasoning_output_tokens",
}
CALLED = {"call_id", "tool_name", "tool_source"}
"""The keys of the span around an execution, which is named like the tool."""


def matches(span: Span) -> bool:
    """Return whether Codex wrote the span."""
    return span.attributes.get(TARGET, "").startswith("codex_")


def reader(span: Span) -> Reader:
    """Return the function that reads the spans of this name."""
    if span.name == RECEIVED and COUNTED in span.attributes:
        return _read_counts
    if span.attributes.keys() >= CALLED:
        return _read_tool
    return _READERS.get(span.name, span_rows.no_row)


def _read_turn(span: Span) -> LlmCall:
    call = _call(span)
    call.request_model = reading.text(span.attributes, "model")
    return span_rows.completed(call)


def _read_counts(span: Span) -> LlmCall:
    call = _call(span)
    for name, key in COUNTS.items():
        setattr(call, name, reading.integer(span.attributes, key))
    # The end of the stream, so its time is not that of the request.
    call.start_ns = call.end_ns
    return span_rows.completed(call)


def _read_refusal(span: Span) -> LlmCall | None:
    """Read a request that was sent; None if it was answered, perhaps after others were refused."""
    fields = _last_event(span, "codex.api_request")
    status = reading.integer(fields, "http.response.status_code")
    message = reading.text(fields, "error.message")
    if message is None and (status is None or status < _REFUSED):
        return None
    call = _call(span)
    call.error_type, call.error_message = str(status) if status else "_OTHER", message
    return span_rows.completed(call)


def _call(span: Span) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    return call


def _read_tool(span: Span) -> ToolCall:
    tool = span_rows.tool_call(
        span, span.attributes["tool_name"], tool_call_id=span.attributes["call_id"]
    )
    if span.attributes.get("aborted") == "true":
        tool.error_type = tool.error_type or "aborted"
    return tool


def _read_result(span: Span) -> ToolCall | None:
    """Read what a tool was given and returned; the span above it is the execution's own."""
    fields = _last_event(span, "codex.tool_result")
    if "call_id" not in fields:
        return None
    given = fields.get("arguments")
    tool = span_rows.tool_call(
        span,
        fields.get("tool_name"),
        tool_call_id=fields["call_id"],
        arguments=given if (parsed := json_text.parse(given)) is None else parsed,
        result=fields.get("output"),
    )
    if fields.get("success") == "false":
        tool.error_type = tool.error_type or "tool_error"
    return tool


def _last_event(span: Span, name: str) -> Attributes:
    """Return what the last event of a name says, together with the log record of the same name.

    Each has fields that the other lacks. The name is an attribute, as Rust's own name of an event
    is the line of code that wrote it.
    """
    events = [event.attributes for event in span.events]
    logs = [log.attributes for log in span.logs]
    found = [[one for one in some if one.get("event.name") == name] for some in (events, logs)]
    return {key: value for some in found for key, value in (some or [{}])[-1].items()}


_REFUSED = 400
"""The lowest status of HTTP that tells of an error."""
_READERS: dict[str, Reader] = {TURN: _read_turn, SENT: _read_refusal, DISPATCHED: _read_result}
