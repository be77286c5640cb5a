"""Haystack's own tracing: one span per component, with input and output if content is traced.

A generator is a model call; the metadata of its replies comes from the provider. An agent of
Haystack 3 runs its generator without a component's span: a step's span `llm` is the model call, and
its spans `tool` are the executions. In Haystack 2 one component runs several tools in one span, so
tool executions are read from the messages instead.
"""

from collections.abc import Mapping
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects.semconv.tools import TOOL_ERROR
from otel_lightning.collector.derive.messages import (
    finish,
    messages,
    one_message,
    token_counts,
    tool_values,
)
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Message, Span, ToolCall
from otel_lightning.collector.derive.text import json_text, repr_objects

NAME = "haystack"
RANK = 100
COMPONENT = "haystack.component."
KIND = "haystack.component.type"
AGENT = "haystack.agent.run"
MODEL, TOOL = "haystack.agent.step.llm", "haystack.agent.step.tool"
TRIED = "haystack.chat_generator.run"
"""The span of a generator that another component runs."""
REPR_MESSAGE = '"ChatMessage(_role='
"""Occurs in the JSON of a component's input if its messages are `repr()` texts."""
BLOCKS = {
    "ToolCall": "tool_call",
    "ToolCallResult": "tool_call_result",
    "ReasoningContent": "reasoning",
}
"""The key under which Haystack's own tracing writes the blocks of each class."""


def matches(span: Span) -> bool:
    """Return whether the span belongs to a component, an agent or an agent's step."""
    return KIND in span.attributes or span.name in {AGENT, MODEL, TOOL}


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read an agent's span, a tool's, or a model call's; other components as None."""
    if span.name == AGENT:
        return span_rows.agent_run(
            span, "agent", reading.text(span.attributes, "haystack.agent.name")
        )
    if span.name == TOOL:
        return _read_tool(span)
    if span.name == MODEL:
        return _read_call(span, f"{MODEL}.")
    is_call = span.attributes[KIND].endswith("Generator") and not _is_answered_above(span)
    return _read_call(span, COMPONENT) if is_call else None


def _is_answered_above(span: Span) -> bool:
    """Return whether a fallback's span above has the answer; this one has only the input."""
    written = [f"{COMPONENT}{side}" in span.attributes for side in ("input", "output")]
    return span.name == TRIED and written == [True, False] and not span_rows.failed(span)


def _read_tool(span: Span) -> ToolCall:
    result = span.attributes.get(f"{TOOL}.output")
    parsed = json_text.parse(result)
    tool = span_rows.tool_call(
        span,
        reading.text(span.attributes, "haystack.tool.name"),
        arguments=json_text.parse(span.attributes.get(f"{TOOL}.input")),
        result=result if parsed is None else parsed,
    )
    # The failure of a tool is told to the model; its span ends without an error.
    if span.attributes.get("haystack.tool.error") == "true":
        tool.error_type = tool.error_type or TOOL_ERROR
    return tool


def _read_call(span: Span, prefix: str) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    texts = [span.attributes.get(f"{prefix}{side}") for side in ("input", "output")]
    request, answer = map(json_text.parse, texts)
    if request is None and (request := _spelled_request(texts[0])):
        texts = texts[1:]  # it is whole, although no JSON
    _fill(call, json_text.as_object(request), json_text.as_object(answer), span.memory)
    return span_rows.completed(call, *texts)


def _spelled_request(text: str | None) -> dict[str, Any] | None:
    """Return the input of a generator that is written as Python spells it.

    Haystack does so if the input holds what JSON cannot, such as the callback of a stream.
    """
    spelled = repr_objects.parse(f"({text})") if text else None
    if not isinstance(spelled, dict) or not isinstance(spelled.get("messages"), list):
        return None
    turns = [_with_plain_keys(one) for one in spelled["messages"] if isinstance(one, dict)]
    offered = spelled.get("tools")
    tools = [{"data": one} for one in (offered if isinstance(offered, list) else ())]
    return {**spelled, "messages": turns, "tools": tools}


def fill_from_repr(call: LlmCall, sent: Any, answered: Any, memory: MessageMemory | None) -> None:
    """Set messages and tools of a call from components' inputs and outputs as Python spells them.

    Args:
        call: The call; changed in place.
        sent: The input of a generator, whose `messages` and `tools` are texts.
        answered: The output, whose `replies` are texts.
        memory: Messages read before.
    """
    sent, answered = json_text.as_object(sent), json_text.as_object(answered)
    offered = sent.get("tools")
    listed = offered if isinstance(offered, list) else ()
    tools = [{"data": repr_objects.parse(one)} for one in listed]
    sent = {**sent, "messages": _repr_objects(sent.get("messages")), "tools": tools}
    _fill(call, sent, {"replies": _repr_objects(answered.get("replies"))}, memory)


def _repr_objects(texts: Any) -> list[Any]:
    found = map(repr_objects.parse, texts if isinstance(texts, list) else ())
    return [_with_plain_keys(one) for one in found if isinstance(one, dict)]


def _with_plain_keys(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a `ChatMessage` in the form in which Haystack's own tracing writes it."""
    parts = message.get("_content")
    named = (
        (BLOCKS.get(str(one.get(repr_objects.CLASS))), one)
        for one in (parts if isinstance(parts, list) else ())
        if isinstance(one, dict)
    )
    blocks = [{kind: one} if kind else one for kind, one in named]
    return {"role": message.get("_role"), "content": blocks, "meta": message.get("_meta")}


def _fill(
    call: LlmCall,
    sent: Mapping[str, Any],
    answered: Mapping[str, Any],
    memory: MessageMemory | None,
) -> None:
    _fill_request(call, sent, memory)
    replies = answered.get("replies") or []
    call.output_messages = [_choice(reply) for reply in replies] or None
    metas = [json_text.as_object(reply.get("meta")) for reply in replies if isinstance(reply, dict)]
    meta = json_text.as_object(next(iter(metas or answered.get("meta") or []), None))
    call.response_model = meta.get("model")
    identity = meta.get("id")  # of the Responses API
    call.response_id = identity if isinstance(identity, str) else None
    call.finish_reason = finish.reason(meta.get("finish_reason"))
    token_counts.fill_usage(call, token_counts.usage(meta.get("usage")))


def _fill_request(call: LlmCall, sent: Mapping[str, Any], memory: MessageMemory | None) -> None:
    history = sent.get("messages") or sent.get("prompt") or []
    turns = [history] if isinstance(history, str) else history
    call.input_messages = messages.conversation(map(_plain_message, turns), memory) or None
    call.request_params = dict(json_text.as_object(sent.get("generation_kwargs")))
    # A tool is written as {"type": its class, "data": {…}}.
    tools = [json_text.as_object(tool).get("data") for tool in sent.get("tools") or []]
    call.tool_definitions = tool_values.flat_tools(tools)


def _choice(reply: Any) -> Message:
    turns = one_message.read_message(_plain_message(reply))
    reason = json_text.as_object(json_text.as_object(reply).get("meta")).get("finish_reason")
    return messages.choice([part for turn in turns for part in turn["parts"]], reason)


def _plain_message(message: Any) -> Any:
    """Return a message of Haystack in a form that `messages` reads; plain text stays as it is."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    blocks = [_plain_block(block) for block in message["content"] if isinstance(block, dict)]
    return {"role": message.get("role"), "content": blocks}


def _plain_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if call := json_text.as_object(block.get("tool_call")):
        return {**call, "type": "tool_call", "id": _call_id(call), "name": call.get("tool_name")}
    if answered := json_text.as_object(block.get("tool_call_result")):
        origin = json_text.as_object(answered.get("origin"))
        return {"type": "tool_result", "id": _call_id(origin), "result": answered.get("result")}
    if thought := json_text.as_object(block.get("reasoning")):
        return {"type": "reasoning", "content": thought.get("reasoning_text")}
    return block


def _call_id(call: Mapping[str, Any]) -> Any:
    """Return the id of a tool call; with the Responses API, `id` is that of the item."""
    return json_text.as_object(call.get("extra")).get("call_id") or call.get("id")
