"""Langtrace: early conventions' events, beside keys of its own for tools and the response's id."""

from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.messages import messages, tool_values
from otel_lightning.collector.derive.messages.written_blocks import written_out
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "langtrace"
RANK = 70
KIND = "langtrace.service.type"
OFFERED, REQUESTED = "gen_ai.request.tools", "gen_ai.request.tool_results"


def matches(span: Span) -> bool:
    """Return whether Langtrace wrote the span."""
    return KIND in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a span of a model's client; those of frameworks and vector stores only group others."""
    if span.attributes[KIND] != "llm":
        return None
    named = span.attributes.get("gen_ai.operation.name", "")
    # For the Responses API, the operation is the name of the function that was called.
    embeds = "embed" in f"{named} {span.name}".lower()
    operation = "embeddings" if embeds else semconv.OPERATIONS.get(named, "chat")
    call = semconv.read_call(span, NAME, operation)
    for key in (OFFERED, REQUESTED):
        call.request_params.pop(key.removeprefix(semconv.REQUEST), None)
    call.response_id = call.response_id or span.attributes.get("gen_ai.response_id")
    call.tool_definitions = tool_values.flat_tools(_unwrapped(span.attributes.get(OFFERED)))
    # For JavaScript, tool calls of Chat Completions are a text.
    call.output_messages = [
        {**message, "parts": [known for part in message["parts"] for known in written_out(part)]}
        for message in call.output_messages or ()
    ] or None
    # Anthropic's answer that asks for a tool is here, and in no event.
    asked = [] if call.output_messages else list(_unwrapped(span.attributes.get(REQUESTED)))
    if asked:
        call.output_messages = messages.one_turn([{"role": "assistant", "content": asked}])
        call.finish_reason, call.content = "tool_calls", "full"
    return call


def _unwrapped(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list whose items may be JSON texts, or texts of such texts."""
    while isinstance(value, str):
        value = json_text.parse(value)
    if isinstance(value, list):
        for item in value:
            yield from _unwrapped(item)
    elif isinstance(value, dict):
        yield value
