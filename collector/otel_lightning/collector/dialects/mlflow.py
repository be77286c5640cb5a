"""MLflow: every attribute is JSON; a call's inputs and outputs are the provider's payloads."""

from typing import Any

from otel_lightning.collector import json_text, payloads, reading
from otel_lightning.collector.records import AgentRun, LlmCall, Span, ToolCall

NAME = "mlflow"
OPERATIONS = {"CHAT_MODEL": "chat", "LLM": "chat", "EMBEDDING": "embeddings"}


def matches(span: Span) -> bool:
    """Tell whether the span has MLflow's span type."""
    return "mlflow.spanType" in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read an MLflow span."""
    kind = _value(span, "mlflow.spanType")
    if kind in OPERATIONS:
        return _read_call(span, OPERATIONS[kind])
    if kind == "TOOL":
        return _read_tool(span)
    return reading.agent_run(span, "agent", span.name) if kind == "AGENT" else None


def _value(span: Span, key: str) -> Any:
    return json_text.parse(span.attributes.get(key))


def _read_call(span: Span, operation: str) -> LlmCall:
    call = reading.llm_call(span, NAME)
    call.operation = operation
    call.provider = _value(span, "mlflow.message.format")
    call.request_model = _value(span, "model")
    payloads.fill_from_request(call, _value(span, "mlflow.spanInputs"))
    answer = _value(span, "mlflow.spanOutputs")
    payloads.fill_from_response(call, answer)
    call.response_model = call.response_model or _value(span, "mlflow.llm.model")
    tools = _value(span, "mlflow.chat.tools")
    call.tool_definitions = call.tool_definitions or reading.flat_tools(tools or [])
    payloads.fill_usage(call, _usage(span))
    payloads.fill_usage(call, payloads.usage(answer.get("usage") if answer else None))
    sources = [span.attributes.get(f"mlflow.span{side}") for side in ("Inputs", "Outputs")]
    return reading.completed(call, *sources)


def _usage(span: Span) -> payloads.Usage:
    counts = _value(span, "mlflow.chat.tokenUsage") or {}
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "reasoning_tokens")
    return payloads.Usage(*(counts.get(name) for name in names))


def _read_tool(span: Span) -> ToolCall:
    return reading.tool_call(
        span,
        name=_value(span, "mlflow.spanFunctionName") or span.name,
        arguments=_value(span, "mlflow.spanInputs"),
        result=_value(span, "mlflow.spanOutputs"),
    )
