"""LiteLLM's callback: the conventions with gaps, and a child span with the provider's raw answer.

The child's values are Python's spelling of the payload; they are read as literals, never run.
"""

from typing import Any

from otel_lightning.collector import json_text, messages, payloads, reading
from otel_lightning.collector.dialects import semconv
from otel_lightning.collector.records import AgentRun, LlmCall, Span, ToolCall

NAME = "litellm"
RAW = "raw_gen_ai_request"
PREFIX = "llm."


def matches(span: Span) -> bool:
    """Tell whether LiteLLM wrote the span."""
    return span.scope_name == "litellm" or "litellm.call_id" in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read a LiteLLM span: the request, or the raw payload below it."""
    if span.name == RAW:
        return _read_raw(span)
    return _read_request(span) if "litellm.call_id" in span.attributes else semconv.read(span)


def _read_request(span: Span) -> LlmCall:
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name", "chat")
    call = semconv.read_call(span, NAME, semconv.OPERATIONS.get(operation, operation))
    functions = reading.nested(attributes, "llm.request.functions.")
    call.tool_definitions = call.tool_definitions or reading.flat_tools(functions)
    requests = [
        messages.tool_call_part(None, item["function_call"].get("name"), arguments)
        for item in reading.nested(attributes, "gen_ai.completion.")
        if "function_call" in item and (arguments := item["function_call"].get("arguments"))
    ]
    asked = any(p["type"] == "tool_call" for m in call.output_messages or [] for p in m["parts"])
    if requests and call.output_messages and not asked:
        call.output_messages[0]["parts"] += requests
    counted = json_text.parse_literal(attributes.get("metadata.usage_object", ""))
    payloads.fill_usage(call, payloads.usage(counted))
    return call


def _read_raw(span: Span) -> LlmCall | None:
    """Read the raw payload: under `llm.PROVIDER.` are the request and the response at once."""
    fields: dict[str, Any] = {}
    for key, text in span.attributes.items():
        name = key.removeprefix(PREFIX).partition(".")[2]
        value = json_text.parse_literal(text)
        if key.startswith(PREFIX) and name:
            fields[name] = text if value is None else value
    call = reading.llm_call(span, NAME)
    call.operation = "chat"
    call.input_messages = payloads.request_messages(fields)
    call.tool_definitions = reading.flat_tools(fields.get("tools") or [])
    if not payloads.fill_from_response(call, fields):
        return None
    return reading.completed(call)
