"""Monocle's tracing: entities as attributes, what was sent and answered as events.

A message is JSON text of one pair, such as `{"user": "Sun in Rome?"}`; a tool call in it is an
object with `tool_name` or `tool_function`.
"""

from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.messages import finish, messages, token_counts
from otel_lightning.collector.derive.rows import AgentRun, Attributes, LlmCall, Row, Span
from otel_lightning.collector.derive.text import json_text

NAME = "monocle"
RANK = 66
VERSION = "monocle_apptrace.version"
KIND = "span.type"
CONVERSATION_KEYS = ("scope.agentic.session",)
CALLS = ("inference", "inference.framework", "inference.modelapi")
TOOLS = ("agentic.tool.invocation", "agentic.mcp.invocation")
AGENTS = {"agentic.invocation": "agent", "agentic.delegation": "handoff"}
INPUT, OUTPUT, METADATA = "data.input", "data.output", "metadata"
"""The names of the events."""
MODEL = "model."
"""Prefix of the type of the entity that is the model."""
NAMES, IDS = ("tool_name", "tool_function"), ("tool_id", "call_id")


def matches(span: Span) -> bool:
    """Return whether Monocle wrote the span."""
    return VERSION in span.attributes


def read(span: Span) -> Row | None:
    """Read a span of Monocle's; None if it only groups others."""
    kind = span.attributes.get(KIND, "")
    if kind in CALLS:
        return _read_call(span)
    if kind in TOOLS:
        given = _event(span, INPUT).get("input")
        return span_rows.tool_call(
            span,
            reading.text(span.attributes, "entity.1.name"),
            arguments=_arguments(given),
            result=_event(span, OUTPUT).get("response"),
        )
    return _read_agent(span, AGENTS[kind]) if kind in AGENTS else None


def _read_agent(span: Span, kind: str) -> AgentRun:
    return span_rows.agent_run(span, kind, span.attributes.get("entity.1.name") or span.name)


def _event(span: Span, name: str) -> Attributes:
    return next((one.attributes for one in span.events if one.name == name), {})


def _arguments(text: str | None) -> Any:
    """Return the arguments of a tool: an object, or a list with the JSON text of one."""
    value = _object(text)
    value = _object(value[0]) if isinstance(value, list) and len(value) == 1 else value
    return text if value is None else value


def _object(value: Any) -> Any:
    """Return what a text holds, in JSON or as Python spells it; other values unchanged."""
    if not isinstance(value, str):
        return value
    parsed = json_text.parse(value)
    return json_text.parse_literal(value) if parsed is None else parsed


def _read_call(span: Span) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    kind = span.attributes.get("entity.1.type", "")
    call.provider = kind.removeprefix("inference.") or None
    call.request_model = next(_models(span.attributes), None)
    sent, answered = _event(span, INPUT).get("input"), _event(span, OUTPUT).get("response")
    listed = json_text.parse(sent)
    history = [_message(one) for one in (listed if isinstance(listed, list) else [sent]) if one]
    call.input_messages = messages.conversation(history, span.memory) or None
    fields = _event(span, METADATA)
    reason = fields.get("finish_reason")
    if answered and not call.error_type:
        answer = {**_message(answered, role="assistant"), "finish_reason": reason}
        call.output_messages = messages.one_turn([answer]) or None
    call.finish_reason = finish.reason(reason)
    counts = {key: json_text.parse(value) for key, value in fields.items() if "token" in key}
    token_counts.fill_usage(call, token_counts.usage(counts))
    return span_rows.completed(call)


def _models(attributes: Attributes) -> Iterator[str]:
    for key, value in attributes.items():
        if value.startswith(MODEL) and key.endswith(".type"):
            name = attributes.get(f"{key.removesuffix('type')}name")
            if name:
                yield name


def _message(text: Any, role: str = "user") -> dict[str, Any]:
    """Return a message in a provider's form.

    Args:
        text: The JSON text of a pair of role and content, or plain text.
        role: The role of the author of a plain text.
    """
    value = json_text.parse(text) if isinstance(text, str) else text
    value = value if isinstance(value, dict) else {role: text}
    if _call(value):
        return {"role": "assistant", "tool_calls": [_call(value)]}
    if value.keys() == {"call_id", "output"}:
        return {"role": "tool", "tool_call_id": value["call_id"], "content": value["output"]}
    ((said_by, content),) = value.items() if len(value) == 1 else ((role, text),)
    items = _object(content)
    calls = [_call(one) for one in (items if isinstance(items, list) else [items])]
    if calls and all(calls):
        return {"role": "assistant", "tool_calls": calls}
    if isinstance(items, list) and said_by == "assistant":  # the items of a response
        (turn,) = messages.one_turn(items) or [messages.choice([])]
        return turn
    return {"role": said_by, "content": content}


def _call(value: Any) -> dict[str, Any] | None:
    """Return a tool call in OpenAI's form, or None if the value is none."""
    call = _object(value)
    if not isinstance(call, dict):
        return None
    if {"name", "args"} <= call.keys():  # LangChain's
        return {"id": call.get("id"), "function": {"name": call["name"], "arguments": call["args"]}}
    name = next((call[key] for key in NAMES if key in call), None)
    call_id = next((call[key] for key in IDS if call.get(key)), None)
    function = {"name": name, "arguments": call.get("tool_arguments") or None}
    return {"id": call_id, "function": function} if name else None
