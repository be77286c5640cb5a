"""Ids of tool calls where a response uses another id than its tool call.

Some instrumentations write the item id of a tool call (`fc_…`), while its response uses the call
id (`call_…`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from otel_lightning.collector.derive.messages.hosted_tools import ITEM
from otel_lightning.collector.derive.messages.tool_parts import Part, parts_of
from otel_lightning.collector.derive.rows import History, LlmCall, Message


def unify(calls: Sequence[LlmCall]) -> None:
    """Give tool calls the ids that their responses use, if these differ within a rollout.

    Args:
        calls: The model calls of one rollout, in order; changed in place.
    """
    if False not in [_ids_meet(call.history) for call in calls]:
        return
    names: dict[str, str] = {}
    tool_call_ids: list[str] = []
    for call in calls:
        # Ids of a history are compared within it, and with the output of the call before.
        names |= _disagreements(call.input_messages or [], tool_call_ids)
        tool_call_ids = [
            part["id"] for part in parts_of(call.output_messages, "tool_call") if part.get("id")
        ]
    if not names:
        return
    for call in calls:
        call.input_messages = _renamed(call.input_messages, names)
        call.output_messages = _renamed(call.output_messages, names)


def _ids_meet(history: History) -> bool:
    """Return whether each response of a history has a tool call's id, and no id is an item's."""
    if not history.tool_call_ids:
        return history.is_paired
    return history.is_paired and not any(
        one and one.startswith(ITEM) for one in history.tool_call_ids
    )


def _renamed(messages: list[Message] | None, names: Mapping[str, str]) -> list[Message] | None:
    """Return messages with replaced tool call ids, as copies: calls may share a message object."""
    return messages and [
        message
        if names.keys().isdisjoint(part.get("id") for part in parts_of([message], "tool_call"))
        else message | {"parts": [_named(part, names) for part in message["parts"]]}
        for message in messages
    ]


def _named(part: Part, names: Mapping[str, str]) -> Part:
    is_renamed = part["type"] == "tool_call" and part.get("id") in names
    return part | {"id": names[part["id"]]} if is_renamed else part


def _disagreements(history: Sequence[Message], tool_call_ids: Sequence[str]) -> Mapping[str, str]:
    """Pair tool call ids that no response uses with response ids that no tool call has, in order.

    Args:
        history: The input of one call.
        tool_call_ids: Tool call ids in the output of the previous call. They are used until the
            history shows tool calls itself.

    Returns:
        The id to replace, with its replacement.
    """
    turns = _tool_turns(history, tool_call_ids)
    names: dict[str, str] = {}
    # The calls that were asked for have no place in the history if it lost its tool calls. Where a
    # later response uses one of their ids, the first responses are not theirs.
    later = {one for turn in turns[1:] for one in turn.responses}
    for turn in turns[1:] if later.intersection(tool_call_ids) else turns:
        names |= _paired(turn)
    # Traceloop's output names `fc_…` where the next input names `call_…`. If the last tool calls of
    # the history are as many as the asked ones and share no id with them, they are the same calls
    # in the same order.
    repeated = next((turn.calls for turn in reversed(turns[1:]) if turn.calls), [])
    if len(repeated) == len(tool_call_ids) and set(repeated).isdisjoint(tool_call_ids):
        pairs = zip(tool_call_ids, repeated, strict=True)
        names |= {item: shown for item, shown in pairs if item.startswith(ITEM)}
    return {old: new for old, new in names.items() if old and new}


class _ToolTurn(NamedTuple):
    """The tool call ids of one assistant message, and the ids of the responses that follow it."""

    calls: list[str]
    responses: list[str]


def _tool_turns(history: Iterable[Message], tool_call_ids: Sequence[str]) -> list[_ToolTurn]:
    """Split a history at its assistant messages; before the first, `tool_call_ids` are answered."""
    turns = [_ToolTurn(list(tool_call_ids), [])]
    for message in history:
        if message["role"] == "assistant":
            called, last = _ids(message, "tool_call"), turns[-1]
            # A text between tool calls and their responses is of the same turn.
            if called or len(turns) == 1 or last.responses or not last.calls:
                turns.append(_ToolTurn(called, []))
        turns[-1].responses.extend(_ids(message, "tool_call_response"))
    return turns


def _paired(turn: _ToolTurn) -> Mapping[str, str]:
    """Pair the calls of a turn that have no response with the responses that have no call."""
    orphans = [call for call in turn.calls if call not in turn.responses]
    strangers = [response for response in turn.responses if response not in turn.calls]
    # A tool that was not executed leaves an id without a partner.
    return dict(zip(orphans, strangers, strict=False))


def _ids(message: Message, kind: str) -> list[str]:
    parts = message["parts"]
    if len(parts) == 1 and parts[0]["type"] != kind:
        return []
    return [part["id"] for part in parts if part["type"] == kind]
