"""NVIDIA's NeMo Agent Toolkit: OpenInference's keys, with answers as text and LangChain's metadata.

The tool calls of an answer are spelled after its text, as Python spells them.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import openinference
from otel_lightning.collector.derive.dialects.openinference import calls as openinference_calls
from otel_lightning.collector.derive.messages import (
    langchain_results,
    messages,
    one_message,
    tool_values,
)
from otel_lightning.collector.derive.rows import LlmCall, Message, Reader, Span
from otel_lightning.collector.derive.text import json_text

NAME = "nat"
RANK = 5
KIND = "nat.span.kind"
UNKNOWN = "unknown"
"""The text that the toolkit writes for every value that it does not know."""
ADDED = {"additionalProperties": False, "strict": True}
"""The fields that the toolkit adds to the schema of each tool's parameters."""
TOOL_CALLS = "\n\nTool calls: "
"""Separates an answer's text from its tool calls."""


def matches(span: Span) -> bool:
    """Return whether the toolkit wrote the span."""
    return KIND in span.attributes and openinference.KIND in span.attributes


def reader(span: Span) -> Reader:
    """Return the function that reads the spans of this kind."""
    return _read_call if span.attributes[KIND] == "LLM" else openinference.reader(span)


def _read_call(span: Span) -> LlmCall:
    attributes = span.attributes
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    cut = openinference_calls.fill(call, span)
    known = reading.text(attributes, "nat.conversation.id")
    call.conversation_id = call.conversation_id or (known if known != UNKNOWN else None)
    metadata = json_text.as_object(json_text.parse(attributes.get("nat.metadata")))
    result = {"generations": [metadata.get("chat_responses")]}
    langchain_results.fill(call, result)
    # The toolkit calls the framework the provider.
    call.provider = langchain_results.metadata(result).get("model_provider")
    call.tool_definitions = tool_values.flat_tools(map(_tool, metadata.get("tools_schema") or ()))
    output = attributes.get(openinference_calls.OUTPUT)
    call.output_messages = _answer(output, call.finish_reason) if output is not None else None
    return span_rows.completed(call, output, cut=cut)


def _tool(definition: Any) -> Any:
    """Return a tool's definition without what the toolkit adds; it calls the schema's type `type_`.

    Every schema has the additions, so whether the agent sent them is unknown.
    """
    function = json_text.as_object(json_text.as_object(definition).get("function"))
    schema = json_text.as_object(function.get("parameters"))
    plain = {key.removesuffix("_"): schema[key] for key in schema if schema[key] != ADDED.get(key)}
    return {"type": "function", "function": {**function, "parameters": plain}}


def _answer(text: str, reason: str | None) -> list[Message]:
    content, _, spelled = text.rpartition(TOOL_CALLS)
    calls = json_text.parse_literal(spelled)
    if not isinstance(calls, list):
        content, calls = text, []
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    turns = one_message.read_message(message)
    return [messages.choice([part for turn in turns for part in turn["parts"]], reason)]
