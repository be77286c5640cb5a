"""Claude Code and the Claude Agent SDK: usage of each request, and messages if they are logged.

With `OTEL_LOG_RAW_API_BODIES` whole requests and responses are log records, which
`request_bodies` gives to the span of their request. Without it a request's span has the model's
text, only in detailed tracing.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.dialects.semconv import tools as semconv_tools
from otel_lightning.collector.derive.messages import finish, messages, payloads, token_counts
from otel_lightning.collector.derive.messages.tool_parts import DENIED
from otel_lightning.collector.derive.passes.answers.request_bodies import ANSWERED, SENT
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "claude_code"
RANK = 65
KIND = "span.type"
ASKED = "tool.blocked_on_user"
"""The type of the span in which the user, or a rule, decides whether a tool may run."""
SUB_AGENT = "agent_id"
"""A key that only the requests of a sub-agent have. They name its kind, such as `agent.custom`."""
COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_creation_tokens": "cache_creation_input_tokens",
}
"""The keys of the token counts, with Anthropic's names for them."""
HIDDEN = "<REDACTED>"
"""Replaces the model's reasoning in the logged bodies."""
ARGUMENTS_BEGIN = "[TOOL INPUT: "
"""Start of a tool's arguments; the tool's name, `]` and a new line follow."""


def matches(span: Span) -> bool:
    """Return whether Claude Code wrote the span."""
    return KIND in span.attributes and span.name.startswith("claude_code.")


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a span of Claude Code's."""
    kind = span.attributes[KIND]
    if kind == "llm_request":
        return _read_call(span)
    if kind == "tool":
        return _read_tool(span)
    if kind == ASKED:
        # The tool's own span is around this one, and has no other mark of the denial.
        is_denied = span.attributes.get("decision") == "reject"
        return span_rows.tool_call(span, None, source=DENIED) if is_denied else None
    # A `tool.execution` is below its `tool`, and has the error that the tool ended in.
    return semconv.read(span)


def _read_call(span: Span) -> LlmCall:
    attributes = span.attributes
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    if SUB_AGENT in attributes:
        call.agent_name = call.agent_name or reading.text(attributes, "query_source_safe")
    call.provider = reading.provider(attributes, "gen_ai.provider.name", "gen_ai.system")
    call.request_model = reading.text(attributes, "gen_ai.request.model", "model")
    call.response_model = reading.text(attributes, "gen_ai.response.model")
    counts = {name: reading.integer(attributes, key) for key, name in COUNTS.items()}
    token_counts.fill_usage(call, token_counts.usage(counts))
    call.finish_reason = finish.reason(semconv.finish_reasons(attributes)[0])
    call.tool_definitions = semconv.offered(attributes.get("tools"))
    output = reading.text(attributes, "response.model_output")
    call.output_messages = (
        messages.one_turn([{"role": "assistant", "content": output}]) if output else None
    )
    sent, answered = _body(span, SENT), _body(span, ANSWERED)
    # The messages stand before the tools, which are most of a long body.
    is_cut = sent is not None and json_text.is_cut(sent)
    request = json_text.as_object(
        json_text.whole_members(sent or "") if is_cut else json_text.parse(sent)
    )
    listed = request.get("messages")
    history = [_disclosed(one) for one in listed] if isinstance(listed, list) else []
    payloads.fill_from_request(call, request | {"messages": history}, span.memory)
    payloads.fill_from_response(call, _disclosed(json_text.parse(answered)))
    if call.error_type == "_OTHER":
        call.error_type = reading.text(attributes, "status_code", "error_class") or "_OTHER"
    return span_rows.completed(call, sent, answered)


def _body(span: Span, name: str) -> str | None:
    """Return the last body of a request that was logged; above 60 KB its end is missing."""
    bodies = (log.attributes.get("body") for log in reversed(span.logs) if log.event_name == name)
    return next(bodies, None)


def _disclosed(message: Any) -> Any:
    """Return a message without its reasoning if Claude Code put a placeholder there."""
    blocks = json_text.as_object(message).get("content")
    if not isinstance(blocks, list):
        return message
    kept = [one for one in blocks if not _is_hidden(one)]
    return {**message, "content": kept}


def _is_hidden(block: Any) -> bool:
    fields = json_text.as_object(block)
    return (fields.get("type"), fields.get("thinking")) == ("thinking", HIDDEN)


def _read_tool(span: Span) -> ToolCall | None:
    tool = semconv_tools.read(span)
    given = span.attributes.get("tool_input", "")
    if tool is not None and tool.arguments is None:
        text = given.partition("\n")[2] if given.startswith(ARGUMENTS_BEGIN) else given
        tool.arguments = json_text.parse(text)
    if tool is not None and tool.result is None:
        outputs = (one.attributes for one in span.events if one.name == "tool.output")
        tool.result = next((one.get("output") for one in outputs), None)
    return tool
