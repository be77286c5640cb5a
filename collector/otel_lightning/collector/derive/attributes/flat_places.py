"""Where the values of flattened messages are: decided once per shape, from the keys alone."""

from typing import Any, NamedTuple

from otel_lightning.collector.derive.attributes import flattened
from otel_lightning.collector.derive.attributes.flattened import Leaf
from otel_lightning.collector.derive.attributes.shapes import Shape

PLAIN = {"role", "content", "tool_call_id", "finish_reason"}
"""The keys of a message of plain text."""
TOOL_CALL_KEYS = ({"role", "tool_calls"}, {"role", "tool_calls", "finish_reason"})
"""The keys of a message of tool calls alone."""
CALL = {"id", "name", "arguments"}
"""The keys of a tool call."""


class Place(NamedTuple):
    """The keys of one message's values; '' for a value that the message does not have."""

    tree: Any
    """The whole message, as `flattened.items` returns it."""
    role: str
    content: str
    call_id: str
    reason: str
    calls: tuple[tuple[str, str, str], ...]
    """The keys of the id, name and arguments of each tool call, if the message has calls only."""


def places(shape: Shape, prefix: str) -> list[Place]:
    """Return the places of the messages that were flattened under a prefix."""
    items = flattened.items(shape, prefix)
    return [_place(one) for one in items if isinstance(one, dict)]


def _place(tree: dict[str, Any]) -> Place:
    """Return the keys of a message's values, if the message is plain text or has calls only."""
    known = {name: leaf.key for name, leaf in tree.items() if isinstance(leaf, Leaf)}
    role, reason = known.get("role", ""), known.get("finish_reason", "")
    # Every value is a text, under the keys of a plain message. Anything else is rebuilt.
    if tree.keys() == known.keys() <= PLAIN and "content" in known:
        return Place(tree, role, known["content"], known.get("tool_call_id", ""), reason, ())
    listed = tree.get("tool_calls")
    if role and tree.keys() in TOOL_CALL_KEYS and isinstance(listed, list):
        calls = [keys for one in listed if (keys := _call(one))]
        # If one call has other keys, the whole message is rebuilt.
        places = tuple(calls) if len(calls) == len(listed) else ()
        return Place(tree, role, "", "", reason, places)
    return Place(tree, "", "", "", "", ())


def _call(tree: Any) -> tuple[str, str, str] | None:
    """Return the keys of a tool call's id, name and arguments; None if it has others."""
    if not isinstance(tree, dict) or tree.keys() != CALL:
        return None
    call_id, name, arguments = (tree[key] for key in ("id", "name", "arguments"))
    if isinstance(call_id, Leaf) and isinstance(name, Leaf) and isinstance(arguments, Leaf):
        return call_id.key, name.key, arguments.key
    return None
