"""Messages that were flattened into attributes, such as `gen_ai.prompt.0.content`.

The keys of a message say whether it is plain text or asks for tools. All spans of a shape have the
same keys, so they are looked at once per shape, and each text is then read from its place. Other
messages are rebuilt, and read like those that were not flattened.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from otel_lightning.collector.derive import flattened
from otel_lightning.collector.derive.flattened import Leaf
from otel_lightning.collector.derive.rows import Attributes, Message
from otel_lightning.collector.derive.shapes import Shape, shape_of
from otel_lightning.collector.derive.text import messages, tool_parts
from otel_lightning.collector.derive.text.message_memory import MessageMemory

Item = dict[str, Any]
"""A message in a provider's form."""
PLAIN = {"role", "content", "tool_call_id", "finish_reason"}
"""The keys of a message of plain text."""
CALL = {"id", "name", "arguments"}
"""The keys of a tool call."""
ODD_STARTS = ("[", " ", "\n", "\r", "\t")
"""First characters of contents that may be a JSON array of blocks."""
NULL = "null"
"""The content of a message without text, as JavaScript writes it."""


class _Place(NamedTuple):
    """The keys of one message's values. The first three are '' if the message has no such value."""

    tree: Any
    """The whole message, as `flattened.items` returns it."""
    role: str
    content: str
    call_id: str
    reason: str
    calls: tuple[tuple[str, str, str], ...]
    """The keys of the id, name and arguments of each tool call, if the message has calls only."""


class FlatMessages:
    """The messages under one prefix."""

    __slots__ = ("_prefix", "_prepare")

    def __init__(self, prefix: str, prepare: Callable[[Item], Item]) -> None:
        """Declare where the messages are.

        Args:
            prefix: The beginning of their keys, up to the number of the message.
            prepare: Completes a rebuilt message before it is read. It must leave texts alone that
                begin with none of `ODD_STARTS` and are not `NULL`.
        """
        self._prefix, self._prepare = prefix, prepare

    def conversation(self, attributes: Attributes, memory: MessageMemory | None) -> list[Message]:
        """Return the canonical messages of a history, as `messages.conversation` does."""
        found: list[Message] = []
        for place in self._places(shape_of(attributes)):
            message = _asking(place, attributes) if place.calls else _text(place, attributes)
            if message is not None:
                found.append(message)
            else:
                found += messages.read_message(self._rebuilt(place, attributes))
        return messages.joined(found, memory)

    def choices(self, attributes: Attributes) -> list[Message]:
        """Return the output messages of a call, one per choice."""
        return [self._choice(place, attributes) for place in self._places(shape_of(attributes))]

    def _choice(self, place: _Place, attributes: Attributes) -> Message:
        if place.content and (text := _plain_text(attributes[place.content])) is not None:
            plain = messages.plain_message("assistant", text)
            if plain is not None:
                return messages.choice(plain["parts"], attributes.get(place.reason))
        said = {**self._rebuilt(place, attributes), "role": "assistant"}
        reason = said.pop("finish_reason", None)
        parts = [part for turn in messages.read_message(said) for part in turn["parts"]]
        return messages.choice(parts, reason)

    def _rebuilt(self, place: _Place, attributes: Attributes) -> Item:
        return self._prepare(flattened.filled(place.tree, attributes))

    def _places(self, shape: Shape) -> list[_Place]:
        # This object is the key: a dialect has one for each prefix.
        found: list[_Place] | None = shape.plans.get(self)
        if found is None:
            items = flattened.items(shape, self._prefix)
            found = shape.plans[self] = [_place(one) for one in items if isinstance(one, dict)]
        return found


def _place(tree: dict[str, Any]) -> _Place:
    """Return the keys of a message's values, if the message is plain text or has calls only."""
    known = {name: leaf.key for name, leaf in tree.items() if isinstance(leaf, Leaf)}
    role = known.get("role", "")
    # Every value is a text, under the keys of a plain message. Anything else is rebuilt.
    if tree.keys() == known.keys() <= PLAIN and "content" in known:
        call_id, reason = known.get("tool_call_id", ""), known.get("finish_reason", "")
        return _Place(tree, role, known["content"], call_id, reason, ())
    listed = tree.get("tool_calls")
    if role and tree.keys() == {"role", "tool_calls"} and isinstance(listed, list):
        calls = [keys for one in listed if (keys := _call(one))]
        # If one call has other keys, the whole message is rebuilt.
        return _Place(tree, role, "", "", "", tuple(calls) if len(calls) == len(listed) else ())
    return _Place(tree, "", "", "", "", ())


def _call(tree: Any) -> tuple[str, str, str] | None:
    """Return the keys of a tool call's id, name and arguments; None if it has others."""
    if not isinstance(tree, dict) or tree.keys() != CALL:
        return None
    call_id, name, arguments = (tree[key] for key in ("id", "name", "arguments"))
    if isinstance(call_id, Leaf) and isinstance(name, Leaf) and isinstance(arguments, Leaf):
        return call_id.key, name.key, arguments.key
    return None


def _plain_text(text: str) -> str | None:
    """Return a text, or None if it may be JSON."""
    return None if text[:1] in ODD_STARTS or text == NULL else text


def _text(place: _Place, attributes: Attributes) -> Message | None:
    """Return a message of plain text, or None for any other message."""
    if not place.content or not place.role or place.reason:
        return None
    if (text := _plain_text(attributes[place.content])) is None:
        return None
    role = attributes[place.role]
    call_id = attributes[place.call_id] if place.call_id else None
    # A user's message that names a tool call is a tool's response, which `read_message` recognises.
    return None if call_id and role != "tool" else messages.plain_message(role, text, call_id)


def _asking(place: _Place, attributes: Attributes) -> Message | None:
    """Return the assistant's message of tool calls, or None if another role wrote it."""
    if attributes[place.role] != "assistant":
        return None
    parts = [
        tool_parts.tool_call_part(attributes[call_id], attributes[name], attributes[arguments])
        for call_id, name, arguments in place.calls
    ]
    return {"role": "assistant", "parts": tool_parts.distinct_calls(parts)}
