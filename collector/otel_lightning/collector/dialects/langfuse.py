"""Langfuse's SDK: an observation's type, input and output, model and usage."""

from typing import Any

from otel_lightning.collector import json_text, messages, payloads, reading
from otel_lightning.collector.records import AgentRun, LlmCall, Span, ToolCall

NAME = "langfuse"
OPERATIONS = {"generation": "chat", "embedding": "embeddings"}
PREFIX = "langfuse.observation."


def matches(span: Span) -> bool:
    """Tell whether the span has Langfuse's observation type."""
    return f"{PREFIX}type" in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read a Langfuse observation."""
    kind = span.attributes[f"{PREFIX}type"]
    if kind in OPERATIONS:
        return _read_call(span, OPERATIONS[kind])
    if kind == "tool":
        return _read_tool(span)
    return reading.agent_run(span, "agent", span.name) if kind == "agent" else None


def _text(span: Span, name: str) -> str | None:
    return reading.text(span.attributes, f"{PREFIX}{name}")


def _read_call(span: Span, operation: str) -> LlmCall:
    call = reading.llm_call(span, NAME)
    call.operation = operation
    sent = json_text.parse(_text(span, "input"))
    request = sent if isinstance(sent, dict) else {"messages": sent or _text(span, "input")}
    call.input_messages = payloads.request_messages(request)
    call.tool_definitions = reading.flat_tools(request.get("tools") or [])
    call.output_messages = _turn(_text(span, "output"))
    call.response_model = _text(span, "model.name")
    call.request_params = json_text.parse(_text(span, "model.parameters")) or {}
    payloads.fill_usage(call, _usage(json_text.parse(_text(span, "usage_details"))))
    if _text(span, "level") == "ERROR":
        call.error_type = call.error_type or "_OTHER"
        call.error_message = call.error_message or _text(span, "status_message")
    return reading.completed(call, _text(span, "input"), _text(span, "output"))


def _usage(details: Any) -> payloads.Usage:
    """Return the token counts: a provider's, or Langfuse's own, whose details are apart."""
    if not isinstance(details, dict) or "input" not in details:
        return payloads.usage(details)

    def total(side: str) -> int:
        counts = (count for name, count in details.items() if name.partition("_")[0] == side)
        return sum(count for count in counts if reading.is_count(count))

    cached, reasoned = (
        details.get(f"{name}_tokens") for name in ("input_cached", "output_reasoning")
    )
    return payloads.Usage(total("input"), total("output"), cached, reasoned)


def _turn(text: str | None) -> list[Any] | None:
    value = json_text.parse(text)
    if isinstance(value, list):
        items = value
    else:
        answer = value if isinstance(value, dict) else {"content": text} if text else None
        items = [{"role": "assistant", **answer}] if answer else []
    return messages.one_turn(items) or None


def _read_tool(span: Span) -> ToolCall:
    result = _text(span, "output")
    parsed = json_text.parse(result)
    return reading.tool_call(
        span,
        name=span.name,
        arguments=json_text.parse(_text(span, "input")),
        result=result if parsed is None else parsed,
    )
