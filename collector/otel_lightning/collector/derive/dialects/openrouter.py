"""OpenRouter's Broadcast: the router's own record of each request, in the conventions' keys.

The answer is an object of its own form. Spans below it, of the attempts at providers and of the
generation, call themselves chats, too.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.messages import messages, payloads
from otel_lightning.collector.derive.rows import LlmCall, Span
from otel_lightning.collector.derive.text import json_text

NAME = "openrouter"
RANK = 65
KIND = "span.type"
SENT, ANSWERED = "gen_ai.prompt", "gen_ai.completion"


def matches(span: Span) -> bool:
    """Return whether OpenRouter wrote the span."""
    return span.scope_name == NAME and KIND in span.attributes


def read(span: Span) -> LlmCall | None:
    """Read a request; None for the spans below it."""
    if span.attributes[KIND] != "generation":
        return None
    call = semconv.read_call(span, NAME, "chat")
    sent, answered = map(span.attributes.get, (SENT, ANSWERED))
    request = json_text.as_object(json_text.parse(sent))
    call.input_messages = payloads.request_messages(request, span.memory) or None
    answer = json_text.as_object(json_text.parse(answered))
    if answer:
        call.output_messages = messages.one_turn([_message(answer)])
        call.tool_definitions = payloads.request_tools(answer)
        given = json_text.as_object(answer.get("rawRequest"))
        call.request_params |= {key: value for key, value in given.items() if _is_parameter(key)}
    return span_rows.completed(call, sent, answered)


def _message(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as a message; its tool calls have the keys of one already."""
    return {**answer, "role": "assistant", "content": answer.get("completion")}


def _is_parameter(key: str) -> bool:
    return key not in payloads.NOT_PARAMETERS and not key.startswith("_")
