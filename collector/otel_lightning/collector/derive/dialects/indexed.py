"""Flattened `gen_ai.prompt.N.…` attributes: Traceloop before 0.50, AgentOps, Agent Lightning."""

import re
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import flattened, reading
from otel_lightning.collector.derive.attributes.compiled_fields import Field, Fields, lower, text
from otel_lightning.collector.derive.attributes.flat_messages import FlatMessages
from otel_lightning.collector.derive.attributes.flat_readers import BLOCK_STARTS, NULL
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of, values_of
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.dialects.semconv import counts as semconv_counts
from otel_lightning.collector.derive.messages import finish, messages, tool_parts, tool_values
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Attributes,
    LlmCall,
    Message,
    Retrieval,
    Span,
    ToolCall,
)
from otel_lightning.collector.derive.text import json_text

NAME = "indexed"
RANK = 80
OPERATIONS = {
    "chat": "chat",
    "completion": "text_completion",
    "embedding": "embeddings",
    "embeddings": "embeddings",
}
AGENT_KINDS = {"agent": "agent", "session": "workflow", "workflow": "workflow"}
TOOLS = ("llm.request.functions.", "gen_ai.request.functions.", "gen_ai.request.tools.")
TOKENS = ("prompt_token_ids", "response_token_ids")
STATED = {"gen_ai.input.messages", "gen_ai.output.messages"}
"""Keys of the conventions: a span that has one is read as they say, whatever it has besides."""
OPERATION = "gen_ai.operation.name"
"""The conventions' key that Coralogix's packages write beside flattened messages."""
SPAN_KIND, MODEL = "gen_ai.span.kind", "chatmodel"
"""What Eino's callbacks for APMPlus call each span of a graph, and a model call. All have the
flattened keys, in which the others have what the step of the graph got and returned."""
NAMES_ONLY = {"opentelemetry.instrumentation.haystack"}
"""Scopes of packages that write the names of an answer's fields (`replies`) and not its texts."""
LAST_ONLY = {"opentelemetry.instrumentation.vertexai"}
"""Scopes of packages that write of an input only what is new, without the system's instructions."""
NO_TOOL_CALLS = {"opentelemetry.instrumentation.ollama"}
"""Scopes of packages that leave the tool calls out of an answer, and do not say that it has any."""
RESPONSES = "response"
"""Netra's type of a request of the Responses API."""
RERANK = "rerank"
"""Traceloop's type of a reranking: its documents are the messages before the query."""
RANKED = re.compile(r"Doc (?P<place>\d+), Score: (?P<score>\S+)")
"""How Traceloop writes what a reranker says of one document: its place among those sent."""
CONVERSE = {"text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video"}
"""The only key of each block of Bedrock's Converse API, where other providers have a type."""
MOST_TOOLS = 64
"""Maximum number of different tool definitions that are cached per shape."""
JSON_STARTS = ("{", "[")
PARAMETERS = ("temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty")


def _count(*names: str) -> Field:
    prefixes = ("gen_ai.usage.", "llm.usage.")
    return reading.one_integer(*(f"{prefix}{name}" for prefix in prefixes for name in names))


FIELDS = Fields(
    provider=lower("gen_ai.provider.name", "gen_ai.system"),
    request_model=text("gen_ai.request.model"),
    response_model=text("gen_ai.response.model"),
    response_id=text("gen_ai.response.id"),
    input_tokens=_count("prompt_tokens", "input_tokens"),
    output_tokens=_count("completion_tokens", "output_tokens"),
    cached_input_tokens=_count(
        "cache_read_input_tokens", "cache_read.input_tokens", "cached_prompt_text_tokens"
    ),
    reasoning_tokens=_count("reasoning_tokens"),
    cache_creation_input_tokens=_count(
        "cache_creation_input_tokens", "cache_creation.input_tokens"
    ),
)


def matches(span: Span) -> bool:
    """Return whether the span has the flattened layout, without the keys of the conventions."""
    keys = span.attributes
    if not STATED.isdisjoint(keys) or keys.get(SPAN_KIND, MODEL) not in {MODEL, "llm", "LLM"}:
        return False
    is_flat = any(key.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for key in keys)
    if OPERATION in keys:
        return is_flat and keys[OPERATION] in semconv.OPERATIONS
    return (
        is_flat
        or "llm.request.type" in keys
        or "gen_ai.request.type" in keys
        or "agentops.span.kind" in keys
        # VoltAgent writes this key too, beside its own `span.type`.
        or ("tool.call.id" in keys and "span.type" not in keys)
    )


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a span of the flattened layout."""
    if span.attributes.get("llm.request.type") == RERANK:
        return _read_rerank(span)
    kind = span.attributes.get("agentops.span.kind")
    if kind in AGENT_KINDS:
        name = reading.text(span.attributes, "operation.name") or span.name
        return span_rows.agent_run(span, AGENT_KINDS[kind], name)
    if kind == "tool":
        return _read_tool(span)
    if "tool.call.id" in span.attributes:
        return _read_request(span)
    return None if kind else _read_call(span)


class _Plan:
    """How to read the model calls of a shape: decided once, by its keys."""

    __slots__ = (
        "contents",
        "has_reasons",
        "has_tokens",
        "has_tools",
        "has_total",
        "known_tools",
        "last_tools",
        "lost_beginning",
        "parameters",
        "tools",
    )

    def __init__(self, shape: Shape) -> None:
        given = ((name, f"gen_ai.request.{name}") for name in PARAMETERS)
        self.parameters = [(name, key) for name, key in given if key in shape.known]
        self.contents = values_of([key for key in shape.keys if key.endswith(".content")])
        self.has_reasons = not shape.known.isdisjoint(semconv.REASONS)
        self.has_tokens = not shape.known.isdisjoint(TOKENS)
        self.has_tools = shape.has_any(TOOLS)
        self.has_total = not shape.known.isdisjoint(semconv_counts.TOTALS)
        self.tools = values_of([key for key in shape.keys if key.startswith(TOOLS)])
        self.known_tools: dict[tuple[str, ...], list[Any] | None] = {}
        self.lost_beginning = flattened.lost_beginning(shape, "gen_ai.prompt.")
        self.last_tools: tuple[tuple[str, ...], list[Any] | None] = (), None


def _read_call(span: Span) -> LlmCall:
    attributes = span.attributes
    plan = shape_of(attributes).plan(_Plan)
    call = span_rows.llm_call(span, NAME)
    kind = attributes.get("llm.request.type") or attributes.get("gen_ai.request.type") or "chat"
    named = attributes.get(OPERATION, "")
    call.operation = semconv.OPERATIONS.get(named) or OPERATIONS.get(kind)
    FIELDS.fill(call, attributes)
    if plan.parameters:
        given = {name: json_text.parse(attributes[key]) for name, key in plan.parameters}
        call.request_params = given
    if plan.has_tools:
        call.tool_definitions = _tools(attributes, plan, plan.tools(attributes))
    _fill_messages(call, span, kind)
    if plan.has_total:
        span_rows.count_hidden(call, reading.integer(attributes, *semconv_counts.TOTALS))
    if plan.has_tokens:
        _fill_token_ids(call, attributes)
    if plan.has_reasons and not any("finish_reason" in one for one in call.output_messages or ()):
        call.finish_reason = finish.reason(semconv.finish_reasons(attributes)[0])
    # A text that is no JSON was not truncated.
    texts = [text for text in plan.contents(attributes) if text.startswith(JSON_STARTS)]
    is_part = plan.lost_beginning or span.scope_name in LAST_ONLY or _lacks_calls(call, span)
    return span_rows.completed(call, *texts, cut=is_part)


def _fill_token_ids(call: LlmCall, attributes: Attributes) -> None:
    """Set the token ids that Agent Lightning adds to AgentOps' spans, as arrays of integers."""
    prompt, sampled = (reading.token_ids(reading.array(attributes, key)) for key in TOKENS)
    call.prompt_token_ids = call.prompt_token_ids or prompt
    call.completion_token_ids = call.completion_token_ids or sampled


def flat_input(span: Span) -> list[Message]:
    """Return the input of a call from the attributes with their numbers."""
    return SENT.conversation(span.attributes, span.memory)


def _fill_messages(call: LlmCall, span: Span, kind: str) -> None:
    """Set the messages of a call from the attributes with their numbers."""
    sent, answered = flat_input(span), []
    if span.scope_name not in NAMES_ONLY:
        answered = _with_reason(ANSWERED.choices(span.attributes))
    if kind == RESPONSES:
        sent = messages.joined(list(map(_item, sent)))
        answered = messages.one_turn(map(_item, answered))
    call.input_messages, call.output_messages = sent or None, answered or None


def _lacks_calls(call: LlmCall, span: Span) -> bool:
    """Return whether the answer may have had tool calls that its package leaves out."""
    return span.scope_name in NO_TOOL_CALLS and bool(call.tool_definitions and call.output_messages)


def _read_rerank(span: Span) -> Retrieval:
    """Read a reranking of documents."""
    texts, answers = (
        [one.get("content") for one in flattened.nested(span.attributes, prefix)]
        for prefix in ("gen_ai.prompt.", "gen_ai.completion.")
    )
    ranked = [found for one in answers if (found := RANKED.match(one or ""))]
    documents = [
        {"content": texts[place], "score": one["score"]}
        for one in ranked
        if (place := int(one["place"])) < len(texts) - 1
    ]
    return span_rows.retrieval(span, "reranker", texts[-1] if texts else None, documents)


def _with_reason(choices: list[Message]) -> list[Message]:
    """Put together an answer whose finish reason has a number of its own, as Netra writes it.

    The numbers before it are the parts of one answer: its text, or one tool call each.
    """
    *pieces, last = choices or [{}]
    if not pieces or last["parts"] or any("finish_reason" in one for one in pieces):
        return choices
    return [{**last, "parts": [part for one in pieces for part in one["parts"]]}]


def _tools(attributes: Attributes, plan: _Plan, written: tuple[str, ...]) -> list[Any] | None:
    """Return the tools that a call offers; the calls of an agent, which repeat them, share them."""
    last, tools = plan.last_tools
    if written == last:
        return tools
    if written not in plan.known_tools:
        if len(plan.known_tools) >= MOST_TOOLS:
            plan.known_tools.clear()
        found = (flattened.nested(attributes, prefix) for prefix in TOOLS)
        plan.known_tools[written] = tool_values.flat_tools(next(filter(None, found), ()))
    plan.last_tools = written, plan.known_tools[written]
    return plan.known_tools[written]


def _message(item: dict[str, Any]) -> dict[str, Any]:
    """Return a flattened message in a provider's form, with JSON blocks of content parsed."""
    content = item.get("content")
    blocks = (
        json_text.parse(content) if type(content) is str and content[:1] in BLOCK_STARTS else None
    )
    if _is_blocks(blocks):
        return {**item, "content": blocks}
    match blocks:
        case [{"role": "assistant", "tool_calls": list()}]:  # Eino's answer without text
            return dict(blocks[0])
    if content == NULL and item.get("role") == "assistant":  # JavaScript writes null as text
        return {**item, "content": None}
    if item.get("role") == "assistant" and "tool_call_id" in item:
        return _tool_call_message(item, json_text.as_object(json_text.parse(content)))
    return item


def _tool_call_message(item: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a tool call that Netra writes as the text of the assistant."""
    if request.keys() != {"name", "arguments"}:
        return item
    return {"role": "assistant", "tool_calls": [{"id": item["tool_call_id"], **request}]}


def _item(message: Message) -> Message:
    """Return an item of a response; Netra writes a tool call as text, without its id."""
    request = {}
    if message["role"] == "assistant" and len(message["parts"]) == 1:
        request = json_text.as_object(json_text.parse(message["parts"][0].get("content")))
    if request.keys() != {"name", "arguments"}:
        return message
    part = tool_parts.tool_call_part(None, request["name"], request["arguments"])
    return {"role": "assistant", "parts": [part]}


def _is_blocks(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_block, value))


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and (
        "type" in value or (len(value) == 1 and value.keys() <= CONVERSE)
    )


SENT = FlatMessages("gen_ai.prompt.", _message)
ANSWERED = FlatMessages("gen_ai.completion.", _message)


def _read_tool(span: Span) -> ToolCall:
    """Read the execution of a decorated function. Its name may differ from the tool's name."""
    attributes = span.attributes
    result = attributes.get("agentops.tool.output", attributes.get("agentops.entity.output"))
    parsed = json_text.parse(result)
    return span_rows.tool_call(
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
    return span_rows.tool_call(
        span,
        name=reading.text(attributes, "tool.name"),
        llm_span_id=span.parent_span_id,
        tool_call_id=attributes["tool.call.id"],
        arguments=attributes.get("tool.parameters"),
        source="request",
    )
