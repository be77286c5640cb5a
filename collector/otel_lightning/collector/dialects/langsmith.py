"""LangSmith's OpenTelemetry export: messages as LangChain serialises them, as one JSON text."""

from typing import Any

from otel_lightning.collector import json_text, messages, payloads, reading
from otel_lightning.collector.dialects import semconv
from otel_lightning.collector.records import AgentRun, LlmCall, Message, Span, ToolCall

NAME = "langsmith"


def matches(span: Span) -> bool:
    """Tell whether the span has LangSmith's span kind."""
    return "langsmith.span.kind" in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read a LangSmith run."""
    kind = span.attributes["langsmith.span.kind"]
    if kind == "llm":
        return _read_call(span)
    if kind == "tool":
        return _read_tool(span)
    is_agent = "lc_agent_name" in span.attributes and not span.parent_span_id
    return reading.agent_run(span, "agent", span.name) if is_agent else None


def _read_call(span: Span) -> LlmCall:
    """Read a call: what the conventions name, then LangChain's own prompt and result."""
    attributes = span.attributes
    call = semconv.read_call(span, NAME, "chat")
    prompt = json_text.parse(attributes.get("gen_ai.prompt"))
    result = json_text.parse(attributes.get("gen_ai.completion"))
    metadata = payloads.langchain_metadata(result)
    call.input_messages = messages.conversation(_first(prompt, "messages")) or None
    call.output_messages = _choices(_first(result, "generations")) or None
    call.response_id = call.response_id or metadata.get("id")
    call.response_model = metadata.get("model_name") or call.response_model
    call.finish_reason = messages.finish_reason(metadata.get("finish_reason"))
    payloads.fill_usage(call, payloads.usage(metadata.get("token_usage")))
    payloads.fill_usage(call, payloads.langchain_usage(result))
    sources = (attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion"))
    return reading.completed(call, *sources)


def _first(value: Any, key: str) -> list[Any]:
    """Return the first of a batch of lists: a span records one."""
    batch = value.get(key) if isinstance(value, dict) else None
    return batch[0] if isinstance(batch, list) and batch and isinstance(batch[0], list) else []


def _choices(generations: list[Any]) -> list[Message]:
    return [
        messages.choice(
            turn["parts"], (generation.get("generation_info") or {}).get("finish_reason")
        )
        for generation in generations
        for turn in messages.one_turn([generation.get("message")])
    ]


def _read_tool(span: Span) -> ToolCall:
    attributes = span.attributes
    result = json_text.parse(attributes.get("gen_ai.completion"))
    arguments = json_text.parse(attributes.get("gen_ai.prompt"))
    if isinstance(arguments, dict) and isinstance(arguments.get("input"), str):
        arguments = json_text.parse_literal(arguments["input"]) or arguments["input"]
    output = result.get("output", result) if isinstance(result, dict) else result
    return reading.tool_call(
        span,
        name=reading.text(attributes, "gen_ai.tool.name") or span.name,
        tool_call_id=reading.text(attributes, "gen_ai.tool.call.id"),
        arguments=arguments,
        result=output.get("content", output) if isinstance(output, dict) else output,
    )
