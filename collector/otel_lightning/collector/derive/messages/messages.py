"""Convert messages of any provider to the canonical form: OpenTelemetry's GenAI conventions.

A message is `{"role", "parts"}`. A part is text, reasoning, a tool call, a tool call's response or
media. Nothing is guessed: unknown fields are left out, and truncated JSON is not repaired.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from otel_lightning.collector.derive.messages import finish
from otel_lightning.collector.derive.messages.content_blocks import content_parts
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.one_message import (
    only_calls,
    plain_text,
    read_message,
)
from otel_lightning.collector.derive.messages.tool_parts import Part
from otel_lightning.collector.derive.rows import Message
from otel_lightning.collector.derive.text.json_text import is_cut, parse

SHORT = 8
"""Histories of at most this many messages do not share them with other histories: to look for a
shared copy of each message costs more than the few copies that are saved."""


def conversation(values: Iterable[Any], memory: MessageMemory | None = None) -> list[Message]:
    """Return the canonical messages of a history, in order.

    Each tool response becomes a separate message. Adjacent assistant messages that hold only tool
    calls become one turn, because some packages write each parallel tool call as a message.

    Args:
        values: The messages, each in any form.
        memory: Messages read before. Long histories share theirs with those.
    """
    listed = values if isinstance(values, list) else list(values)
    known_before = memory.known if memory and len(listed) > 1 else None
    messages: list[Message] = []
    is_plain = True
    for value in listed:
        plain: Message | None = None
        if type(value) is dict and "parts" not in value:
            plain = plain_text(value)
        elif known_before:
            plain = known_before(value)
        if plain is None:
            messages += read_message(value)
            is_plain = False
        else:
            messages.append(plain)
            is_plain = is_plain and plain["role"] != "tool"
    if not is_plain:
        return joined(messages, memory)
    # Only messages of tools may have to be joined, or lack ids.
    return _shared(messages, memory)


def joined(messages: list[Message], memory: MessageMemory | None = None) -> list[Message]:
    """Join the adjacent messages of canonical ones that hold only tool calls: see `conversation`.

    Args:
        messages: The messages. One that asks for tools alone may be changed in place.
        memory: Messages read before.
    """
    turns: list[Message] = []
    asking = lost = False
    for message in messages:
        if message["role"] != "assistant":
            asking = False
            if message["role"] == "tool":
                lost = lost or None in [part.get("id") for part in message["parts"]]
        else:
            was_asking, asking = asking, only_calls(message)
            if asking and was_asking:
                # No other history holds this message: messages are shared only below, and those
                # that are shared already hold text and no tool calls.
                turns[-1]["parts"] += message["parts"]
                continue
        turns.append(message)
    if lost:
        turns = _with_ids(turns)
    return _shared(turns, memory)


def _shared(turns: list[Message], memory: MessageMemory | None) -> list[Message]:
    """Return a history that shares its messages with others, if it is long."""
    return list(map(memory.one_copy, turns)) if memory and len(turns) > SHORT else turns


def _with_ids(turns: list[Message]) -> list[Message]:
    """Give tool responses without ids those of the tool calls before them, in order.

    Only where a turn's tool calls are as many as the responses that follow it, and none of these
    has an id. OpenLIT and LangChain's handler of Langfuse drop the ids in JavaScript.
    """
    for at, message in enumerate(turns):
        parts = message["parts"] if message["role"] == "assistant" else ()
        ids = [part.get("id") for part in parts if part["type"] == "tool_call"]
        after = list(takewhile(lambda one: one["role"] == "tool", turns[at + 1 :])) if ids else []
        given = [[part.get("id") for part in one["parts"]] for one in after]
        if given and given == [[None]] * len(ids):
            turns[at + 1 : at + 1 + len(ids)] = [
                {**one, "parts": [{**one["parts"][0], "id": own}]}
                for one, own in zip(after, ids, strict=True)
            ]
    return turns


def one_turn(values: Iterable[Any]) -> list[Message]:
    """Return the messages of one model turn, joined into one assistant message."""
    messages = [message for value in values for message in read_message(value)]
    if not messages:
        return []
    parts = [part for message in messages for part in message["parts"]]
    reasons = [message["finish_reason"] for message in messages if "finish_reason" in message]
    return [choice(parts, reasons[-1] if reasons else None)]


def choice(parts: list[Part], reason: object = None) -> Message:
    """Return one output message; the reason `stop` becomes `tool_calls` if it requests tools."""
    ended = finish.reason(reason)
    if ended == "stop" and "tool_call" in [part["type"] for part in parts]:
        ended = "tool_calls"
    message: Message = {"role": "assistant", "parts": parts}
    if ended:
        message["finish_reason"] = ended
    return message


def with_system(
    instructions: list[Part], messages: list[Message], memory: MessageMemory | None = None
) -> list[Message]:
    """Prepend the system instructions, unless the messages already start with them."""
    head: Message = {"role": "system", "parts": instructions}
    if not instructions or (messages and messages[0] == head):
        return messages
    return [memory.one_copy(head) if memory and messages else head, *messages]


def system_parts(text: str | None) -> list[Part]:
    """Return the parts of system instructions, which are JSON parts, a JSON text or plain text."""
    if text is None or is_cut(text):
        return []
    value = parse(text)
    return content_parts(value if isinstance(value, list | str) else text)
