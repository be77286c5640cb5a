"""Flattened `gen_ai.prompt.N.…` attributes: Traceloop before 0.50, AgentOps, Agent Lightning."""

from typing import Any

from otel_lightning.collector.derive import flattened, reading
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Message, Span, ToolCall
from otel_lightning.collector.derive.shapes import Shape, shape_of
from otel_lightning.collector.derive.text import json_text, messages, payloads

NAME = "indexed"
RANK = 80
OPERATIONS = {
    "chat": "chat",
    "completion": "text_completion",
    "embedding": "embeddings",
    "embeddings": "embeddings",
}
AGENT_KINDS = {"agent": "agent", "session": "workflow", "workflow": "workflow"}
PARAMETERS = ("temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty")


def matches(span: Span) -> bool:
    """Tell whether the span has the flattened layout, without the keys of the conventions."""
    keys = span.attributes
    if "gen_ai.operation.name" in keys or "gen_ai.output.messages" in keys:
        return False
    return (
        "llm.request.type" in keys
        or "gen_ai.request.type" in keys
        or "agentops.span.kind" in keys
        or ("tool.call.id" in keys and "span.type" not in keys)
        or any(key.startswith("gen_ai.prompt.") for key in keys)
    )


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read a span of the flattened layout."""
    kind = span.attributes.get("agentops.span.kind")
    if kind in AGENT_KINDS:
        name = reading.text(span.attributes, "operation.name") or span.name
        return reading.agent_run(span, AGENT_KINDS[kind], name)
    if kind == "tool":
        return _read_tool(span)
    if "tool.call.id" in span.attributes:
        return _read_request(span)
    return None if kind else _read_call(span)


def _read_call(span: Span) -> LlmCall:
    attributes = span.attributes
    call = reading.llm_call(span, NAME)
    kind = reading.text(attributes, "llm.request.type", "gen_ai.request.type")
    call.operation = OPERATIONS.get(kind or "chat")
    call.provider = reading.provider(attributes, "gen_ai.provider.name", "gen_ai.system")
    call.request_model = reading.text(attributes, "gen_ai.request.model")
    call.response_model = reading.text(attributes, "gen_ai.response.model")
    call.response_id = reading.text(attributes, "gen_ai.response.id")
    call.request_params = _parameters(span)
    call.tool_definitions = _tools(span)
    call.input_messages = messages.conversation(_flattened(span, "gen_ai.prompt.")) or None
    call.output_messages = [
        _choice(item) for item in _flattened(span, "gen_ai.completion.")
    ] or None
    prompt = reading.token_ids(reading.array(attributes, "prompt_token_ids"))
    sampled = reading.token_ids(reading.array(attributes, "response_token_ids"))
    call.prompt_token_ids = call.prompt_token_ids or prompt
    call.completion_token_ids = call.completion_token_ids or sampled
    payloads.fill_usage(call, _usage(span))
    contents = shape_of(attributes).plan(_contents)
    return reading.completed(call, *[attributes[key] for key in contents])


def _contents(shape: Shape) -> tuple[str, ...]:
    """Return the keys of a shape that hold the content of a message."""
    return tuple(key for key in shape.keys if key.endswith(".content"))


def _usage(span: Span) -> payloads.Usage:
    def count(*names: str) -> int | None:
        return reading.integer(span.attributes, *(f"gen_ai.usage.{name}" for name in names))

    return payloads.Usage(
        count("prompt_tokens", "input_tokens"),
        count("completion_tokens", "output_tokens"),
        count("cache_read_input_tokens", "cache_read.input_tokens"),
        count("reasoning_tokens"),
        count("cache_creation_input_tokens", "cache_creation.input_tokens"),
    )


def _parameters(span: Span) -> dict[str, Any]:
    given = {name: span.attributes.get(f"gen_ai.request.{name}") for name in PARAMETERS}
    return {name: json_text.parse(text) for name, text in given.items() if text is not None}


def _flattened(span: Span, prefix: str) -> list[dict[str, Any]]:
    items = flattened.nested(span.attributes, prefix)
    return [_message(item) for item in items if isinstance(item, dict)]


def _message(item: dict[str, Any]) -> dict[str, Any]:
    """Return a flattened message in a provider's form, with JSON blocks of content parsed."""
    blocks = json_text.parse(item.get("content"))
    content = blocks if _is_blocks(blocks) else item.get("content")
    if content == "null" and item.get("role") == "assistant":  # JavaScript writes null as text
        content = None
    return {**item, "content": content, "tool_calls": item.get("tool_calls", [])}


def _is_blocks(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and "type" in block for block in value)
    )


def _choice(item: dict[str, Any]) -> Message:
    turns = messages.read_message({**item, "role": "assistant"})
    parts = [part for turn in turns for part in turn["parts"]]
    return messages.choice(parts, item.get("finish_reason"))


def _tools(span: Span) -> list[Any] | None:
    for prefix in ("llm.request.functions.", "gen_ai.request.functions."):
        items = flattened.nested(span.attributes, prefix)
        if items:
            return reading.flat_tools(items)
    return None


def _read_tool(span: Span) -> ToolCall:
    """Read the execution of a decorated function. Its name may differ from the tool's name."""
    attributes = span.attributes
    result = attributes.get("agentops.tool.output", attributes.get("agentops.entity.output"))
    parsed = json_text.parse(result)
    return reading.tool_call(
        span,
        name=reading.text(attributes, "operation.name", "tool.name") or span.name,
        arguments=json_text.parse(
            reading.text(attributes, "agentops.tool.input", "agentops.entity.input")
        ),
        result=result if parsed is None else parsed,
    )


def _read_request(span: Span) -> ToolCall:
    """Read a tool call that AgentOps writes as a child span of the model call that requested it."""
    attributes = span.attributes
    return reading.tool_call(
        span,
        name=reading.text(attributes, "tool.name"),
        llm_span_id=span.parent_span_id,
        tool_call_id=attributes["tool.call.id"],
        arguments=attributes.get("tool.parameters"),
        source="request",
    )
