"""Messages that were flattened into attributes, such as `gen_ai.prompt.0.content`.

The keys of a message say whether it is plain text or asks for tools. All spans of a shape have the
same keys, so they are looked at once per shape, and each text is then read from its place: by a
function that is compiled for a shape that repeats. Other messages are rebuilt, and read like those
that were not flattened.
"""

from collections.abc import Callable
from typing import Any

from otel_lightning.collector.derive.attributes import flat_readers, flattened
from otel_lightning.collector.derive.attributes.flat_places import Place, places
from otel_lightning.collector.derive.attributes.flat_readers import BLOCK_STARTS, NULL
from otel_lightning.collector.derive.attributes.shapes import shape_of
from otel_lightning.collector.derive.messages import messages, one_message, tool_parts
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.rows import Attributes, Message

Item = dict[str, Any]
"""A message in a provider's form."""
USES = 32
"""Threshold: a reader is compiled at this use of a shape. Compiling costs as much as it saves in
about 64 uses, and a growing history makes a new shape for each length."""
MOST_KEYS = 1_000
"""Maximum number of keys that a compiled reader reads: compiling takes about 0.1 ms and 18 KB a
key, so one for 100,000 keys would take 6 s and 2 GB."""
MOST_KEPT_KEYS = 100_000
"""Maximum number of keys of all compiled readers; a key keeps about 370 bytes of code. Above it all
are dropped, and those that are used again are compiled again."""


class _Plan:
    """The places of the messages of a shape, and the function that is compiled for them."""

    __slots__ = ("places", "read", "uses")

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.read: Any = None
        self.uses = 0

    def reader(self, make: Callable[[list[Place], Any], Any], other: Any) -> Any:
        """Return the compiled function; None before the shape was used often, or if it is large."""
        if self.read is None:
            self.uses += 1
            if self.uses == USES and (keys := _keys_of(self.places)) <= MOST_KEYS:
                _compiled.add(self, keys)
                self.read = make(self.places, other)
        return self.read


class _Compiled:
    """The plans with a compiled function, and how many keys these read together."""

    def __init__(self) -> None:
        self.keys = 0
        self._plans: list[_Plan] = []

    def add(self, plan: _Plan, keys: int) -> None:
        """Note that a plan's function is compiled; drop all others if they become too many."""
        if self.keys + keys > MOST_KEPT_KEYS:
            for one in self._plans:
                one.read, one.uses = None, 0
            self._plans.clear()
            self.keys = 0
        self._plans.append(plan)
        self.keys += keys


_compiled = _Compiled()


def _keys_of(places: list[Place]) -> int:
    # A message has a role and a text; a tool call has an id, a name and arguments.
    return sum(2 + 3 * len(place.calls) for place in places)


class FlatMessages:
    """The messages under one prefix."""

    __slots__ = ("_prefix", "_prepare")

    def __init__(self, prefix: str, prepare: Callable[[Item], Item]) -> None:
        """Declare where the messages are.

        Args:
            prefix: The beginning of their keys, up to the number of the message.
            prepare: Completes a rebuilt message before it is read. It must leave texts alone that
                begin with none of `BLOCK_STARTS` and are not `NULL`.
        """
        self._prefix, self._prepare = prefix, prepare

    def conversation(self, attributes: Attributes, memory: MessageMemory | None) -> list[Message]:
        """Return the canonical messages of a history, as `messages.conversation` does."""
        plan = self._plan(attributes)
        read = plan.read or plan.reader(flat_readers.history, self._read)
        if read is None:
            turns = [one for place in plan.places for one in self._read(place, attributes)]
            return messages.joined(turns, memory)
        history: list[Message]
        history, again = read(attributes)
        if again:
            return messages.joined(history, memory)
        if memory is not None and len(history) > messages.SHORT:
            return list(map(memory.one_copy, history))
        return history

    def choices(self, attributes: Attributes) -> list[Message]:
        """Return the output messages of a call, one per choice."""
        plan = self._plan(attributes)
        read = plan.read or plan.reader(flat_readers.choices, self._choice)
        if read is None:
            return [self._choice(place, attributes) for place in plan.places]
        turns: list[Message] = read(attributes)
        return turns

    def _plan(self, attributes: Attributes) -> _Plan:
        # A dialect uses an object like this for each prefix, and either its histories or its
        # choices: the object is the key.
        shape = shape_of(attributes)
        plan: _Plan | None = shape.plans.get(self)
        if plan is None:
            plan = shape.plans[self] = _Plan(places(shape, self._prefix))
        return plan

    def _read(self, place: Place, attributes: Attributes) -> list[Message]:
        """Return the messages of any message of a history."""
        message = _tool_call_message(place, attributes) if place.calls else _text(place, attributes)
        if message is not None:
            return [message]
        return one_message.read_message(self._rebuilt(place, attributes))

    def _choice(self, place: Place, attributes: Attributes) -> Message:
        """Return any output message."""
        text = _plain_text(attributes[place.content]) if place.content else None
        if text is not None and not place.call_id:
            plain = one_message.plain_message("assistant", text)
            if plain is not None:
                return messages.choice(plain["parts"], attributes.get(place.reason))
        message = {**self._rebuilt(place, attributes), "role": "assistant"}
        reason = message.pop("finish_reason", None)
        parts = [part for turn in one_message.read_message(message) for part in turn["parts"]]
        return messages.choice(parts, reason)

    def _rebuilt(self, place: Place, attributes: Attributes) -> Item:
        return self._prepare(flattened.filled(place.tree, attributes))


def _plain_text(text: str) -> str | None:
    """Return a text, or None if it may be JSON."""
    return None if text[:1] in BLOCK_STARTS or text == NULL else text


def _text(place: Place, attributes: Attributes) -> Message | None:
    """Return a message of plain text, or None for any other message."""
    if not place.content or not place.role or place.reason:
        return None
    if (text := _plain_text(attributes[place.content])) is None:
        return None
    role = attributes[place.role]
    call_id = attributes[place.call_id] if place.call_id else None
    # A user's message that names a tool call is a tool's response, which `read_message` recognises.
    return None if call_id and role != "tool" else one_message.plain_message(role, text, call_id)


def _tool_call_message(place: Place, attributes: Attributes) -> Message | None:
    """Return the assistant's message of tool calls, or None if another role wrote it."""
    if place.reason or attributes[place.role] != "assistant":
        return None
    parts = [
        tool_parts.tool_call_part(attributes[call_id], attributes[name], attributes[arguments])
        for call_id, name, arguments in place.calls
    ]
    return {"role": "assistant", "parts": tool_parts.distinct_calls(parts)}
