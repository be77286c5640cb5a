"""Merge the model calls of a rollout into one conversation without duplicate messages.

Each call repeats the earlier messages of the conversation. So a message is new only if the call
holds it more often than it was shown so far. An answer is shown once, as the output of its call,
and not again as input of later calls.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_lightning.collector.show.conversation import ShownMessages, parts_of, read_messages
from otel_lightning.learner.chat import INCOMPLETE

Row = Mapping[str, Any]
Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the conversation; `parts` in the form of OpenTelemetry's GenAI conventions."""

    role: str
    parts: tuple[Part, ...]
    agent: str | None = None


def conversation(calls: Sequence[Row], tools: Sequence[Row]) -> list[Turn]:
    """Merge the calls of one rollout into one conversation.

    Args:
        calls: Columns span_id, agent_name, input_messages, output_messages, content, error_type
            and error_message, in the order of their steps; messages as JSON text.
        tools: Columns llm_span_id, tool_call_id, name, result, error_type and source of the tool
            calls. A tool call whose result is in the messages is not added again.
    """
    # Ids of the tool calls whose result a later call sent back to the model.
    returned = {part.get("id") for call in calls for part in _responses(call)}
    results: dict[str | None, list[Turn]] = defaultdict(list)
    for tool in tools:
        if tool["source"] == "span" and (tool["tool_call_id"] or "") not in returned:
            results[tool["llm_span_id"]].append(_tool_turn(tool))
    shown = ShownMessages()
    turns = [turn for call in calls for turn in [*_turns(call, shown), *results[call["span_id"]]]]
    # Tools that belong to no model call come last: their place is not known.
    return turns + results[None]


def _turns(call: Row, shown: ShownMessages) -> Iterator[Turn]:
    shown.begin_call()
    for message in read_messages(call["input_messages"]):
        if shown.is_new(message):
            yield Turn(message["role"], tuple(message.get("parts") or ()))
    if call["content"] in INCOMPLETE:
        yield _note(f"the trace holds this model call's messages only {call['content']}", call)
    # If there are several choices, agents go on with the first one.
    for message in read_messages(call["output_messages"])[:1]:
        if shown.is_new(message):
            yield Turn("assistant", tuple(message.get("parts") or ()), call["agent_name"])
    if call["error_type"]:
        yield _note(f"the model call failed: {call['error_type']} {call['error_message']}", call)


def _note(text: str, call: Row) -> Turn:
    return Turn("note", ({"type": "text", "content": text},), call["agent_name"])


def _tool_turn(tool: Row) -> Turn:
    result = tool["error_type"] if tool["result"] is None else json.loads(tool["result"])
    response = {"type": "tool_call_response", "id": tool["tool_call_id"], "response": result}
    return Turn("tool", ({**response, "name": tool["name"]},))


def _responses(call: Row) -> Iterator[Part]:
    yield from parts_of(read_messages(call["input_messages"]), "tool_call_response")
