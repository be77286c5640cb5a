"""Mastra: one model call as nested spans, of which none has all that is known about it.

`model_generation` has the whole input of an agent's run, `model_step` an outline of each call's
input and the call's answer, and `model_inference` the model, the token counts and the finish
reason. The three are merged like any records of one call; `outlines` completes the inputs.
"""

import re
from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.dialects import semconv, semconv_tools
from otel_lightning.collector.derive.rows import LlmCall, Message, Reader, Row, Span, ToolCall
from otel_lightning.collector.derive.text import json_text, messages, payloads
from otel_lightning.collector.derive.text.tool_parts import Part, response_part

NAME = "mastra"
RANK = 15
TYPE = "mastra.span.type"
INPUT, OUTPUT = "mastra.{}.input", "mastra.{}.output"
BODY, MODEL = "mastra.metadata.body", "mastra.metadata.modelMetadata"
"""The provider's own response, which a call has that was not streamed; and the model's name."""
OUTLINED = re.compile(r"\[tool(?P<result>-result)?: (?P<name>[^\]]+)\]")
"""What stands in an outline for a tool call or for its result."""


def matches(span: Span) -> bool:
    """Tell whether Mastra wrote the span."""
    return TYPE in span.attributes


def read(span: Span) -> Row | None:
    """Read a span of Mastra's."""
    return reader(span)(span)


def reader(span: Span) -> Reader:
    """Return the function that reads the spans of this type."""
    kind = span.attributes[TYPE]
    if kind == "model_step":
        return _read_step
    # Without spans for single calls, this type has the keys of the conventions.
    if kind == "model_generation" and span.attributes.get("gen_ai.operation.name") != "chat":
        return _read_generation
    if kind in {"model_inference", "model_generation"}:
        return _read_inference
    return _read_tool if kind.endswith("tool_call") else semconv.reader(span)


def _read_inference(span: Span) -> LlmCall:
    call = semconv.read_call(span, NAME, "chat")
    if call.finish_reason == "tool_calls" and not span_rows.asks_for_tools(call):
        call.output_messages = None  # its text alone is not the answer
    return span_rows.completed(call)


def _read_generation(span: Span) -> LlmCall:
    call = _call(span, "model_generation")
    sent = json_text.parse(span.attributes.get(INPUT.format("model_generation")))
    if isinstance(sent, dict):
        call.input_messages = payloads.request_messages(sent, span.memory)
    return span_rows.completed(call)


def _read_step(span: Span) -> LlmCall:
    call = _call(span, "model_step")
    sent = json_text.parse(span.attributes.get(INPUT.format("model_step")))
    told = [one for message in sent for one in _told(message)] if isinstance(sent, list) else []
    call.input_messages = messages.joined(told, span.memory) or None
    payloads.fill_from_response(call, json_text.parse(span.attributes.get(BODY)))
    return span_rows.completed(call)


def _call(span: Span, kind: str) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    named = json_text.parse(span.attributes.get(MODEL))
    call.request_model = named.get("modelId") if isinstance(named, dict) else None
    said = json_text.parse(span.attributes.get(OUTPUT.format(kind)))
    if isinstance(said, dict):
        asked = said.get("toolCalls")
        answer = {"role": "assistant", "content": said.get("text"), "tool_calls": asked}
        call.output_messages = messages.one_turn([answer]) or None
    return call


def _told(message: Any) -> Iterator[Message]:
    """Yield the messages of an outline; what it leaves out of tool calls and results is not set."""
    text = message.get("content") if isinstance(message, dict) else None
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(text, str) or role not in {"assistant", "tool"}:
        yield from messages.read_message(message)
    elif role == "tool":
        results = list(OUTLINED.finditer(text))
        parts = [response_part(None, None) for _ in results] or [response_part(None, text)]
        yield from ({"role": "tool", "parts": [part]} for part in parts)
    else:
        said = OUTLINED.sub("", text)
        parts = [{"type": "text", "content": said}] if said else []
        yield {"role": "assistant", "parts": [*parts, *map(_asked, OUTLINED.finditer(text))]}


def _asked(found: re.Match[str]) -> Part:
    return {"type": "tool_call", "id": None, "name": found["name"]}


def _read_tool(span: Span) -> ToolCall | None:
    tool = semconv_tools.read(span)
    if tool is not None and tool.error_type and tool.result is None:
        tool.result = span.attributes.get("error.message")  # which the model is told
    return tool
