"""The hashes of one message: of what it says, with and without the ids of tool calls."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from otel_lightning.collector.derive.messages.hosted_tools import is_hosted
from otel_lightning.collector.derive.messages.message_memory import SharedMessage
from otel_lightning.collector.derive.rows import Message
from otel_lightning.collector.derive.text.json_text import dumps

TEXT_KEYS = len(("type", "content"))
TOOL_PARTS = ("tool_call", "tool_call_response")
_SORTED = orjson.OPT_SORT_KEYS
ASSISTANT = "assistant"


class _Heads(dict[str, bytes]):
    """What a message adds to the hash of a history before the hashes of its parts, by its role."""

    def __missing__(self, role: str) -> bytes:
        """Return the head of a role that is none of the usual ones."""
        return b"\0%s\0" % role.encode()


HEADS = _Heads(
    {role: b"\0%s\0" % role.encode() for role in ("system", "user", "assistant", "tool")}
)


class Turn(NamedTuple):
    """The hashes of one message's parts, one after the other."""

    said: bytes
    thoughts: bytes
    """The reasoning, apart from what was said."""
    tools: bool
    asked: tuple[str | None, ...]
    """The ids of its tool calls."""
    answered: tuple[str | None, ...]
    """The ids of its responses."""
    bare: bytes
    """What was said, without these ids."""


_TURN: Callable[[Any], Turn] = partial(tuple.__new__, Turn)
"""Makes a turn of a tuple of all its fields, faster than `Turn(…)`."""


def turn_of(message: Message) -> Turn:
    """Return the hashes of a message; those of a shared message are computed once."""
    if type(message) is not SharedMessage:
        return _hashed(message)
    if message.turn is None:
        message.turn = _hashed(message)
    turn: Turn = message.turn
    return turn


def texts(message: Message) -> bytes | None:
    """Return the hashes of a message that has text alone, or None for any other message."""
    parts = message["parts"]
    if len(parts) == 1:  # as most messages have
        part = parts[0]
        content = part.get("content")
        # A part with a further key, such as a cache mark, is hashed with all of its keys.
        if part["type"] != "text" or len(part) != TEXT_KEYS or type(content) is not str:
            return None
        return b"t" + sha256(content.encode("utf-8", "replace")).digest()
    hashes = b""
    for part in parts:
        content = part.get("content")
        if part["type"] != "text" or len(part) != TEXT_KEYS or type(content) is not str:
            return None
        hashes += b"t" + sha256(content.encode("utf-8", "replace")).digest()
    return hashes or None


def _hashed(message: Message) -> Turn:
    if message["role"] == "tool":
        if (response := _one_response(message["parts"])) is not None:
            return response
    elif (said := texts(message)) is not None:
        return _TURN((said, b"", False, (), (), b""))
    said = bare = thoughts = b""
    tools = False
    asked: list[str | None] = []
    answered: list[str | None] = []
    for part in message["parts"]:
        kind = part["type"]
        if kind == "reasoning":
            thoughts += _hash(part)
        elif kind in TOOL_PARTS or is_hosted(kind):
            tools = True
            call_id = part.get("id") or None
            hashed = _hash_of_tool(part)
            bare += hashed
            said += b"%s#%s" % (hashed, str(call_id).encode(errors="replace"))
            # A tool that the provider ran has an id, but no message of the agent answers it.
            if kind == "tool_call":
                asked.append(call_id)
            elif kind == "tool_call_response":
                answered.append(call_id)
        else:
            hashed = _hash(part)
            bare += hashed
            said += hashed
    return _TURN((said, thoughts, tools, tuple(asked), tuple(answered), bare))


def _one_response(parts: list[dict[str, Any]]) -> Turn | None:
    """Return the hashes of one response to a tool call, or None for any other parts.

    A fast path, because most messages of tools are one response.
    """
    if len(parts) != 1:
        return None
    part = parts[0]
    if part["type"] != "tool_call_response":
        return None
    call_id = part.get("id") or None
    hashed = _hash_of_tool(part)
    said = b"%s#%s" % (hashed, str(call_id).encode(errors="replace"))
    return _TURN((said, b"", True, (), (call_id,), hashed))


def _hash_of_tool(part: dict[str, Any]) -> bytes:
    """Return the hash of a tool's part without its id, and without the raw text of arguments."""
    alone = part.copy()
    # Neither is what the model said.
    alone.pop("id", None)
    alone.pop("arguments_raw", None)
    try:
        text = orjson.dumps(alone, option=_SORTED)
    except TypeError:  # a whole number of more than 64 bits
        text = dumps(alone, sort_keys=True)
    return b"p" + sha256(text).digest()


def _hash(part: dict[str, Any]) -> bytes:
    """Return the hash of what a part says, with a mark that keeps text apart from all else."""
    content = part.get("content")
    if part["type"] == "text" and len(part) == TEXT_KEYS and type(content) is str:
        return b"t" + sha256(content.encode("utf-8", "replace")).digest()
    return b"p" + sha256(dumps(part, sort_keys=True)).digest()


class Numbers:
    """The tool calls of one history by their numbers, which stand for their ids."""

    __slots__ = ("_count", "_known", "_open", "unasked")

    def __init__(self) -> None:
        """Begin before the first message."""
        self._known: dict[str, int] = {}
        self._open: dict[int, None] = {}
        self._count = 0
        self.unasked: list[str] = []
        """The ids of responses that no tool call before them has."""

    def copy(self) -> "Numbers":
        """Return what is known so far, to go on from more than once."""
        twin = Numbers()
        twin._known, twin._open = dict(self._known), dict(self._open)
        twin._count = self._count
        return twin

    def of(self, turn: Turn) -> bytes:
        """Return what a turn says, with numbers in place of the ids of its tool calls."""
        said, _, tools, asked, answered, bare = turn
        if not tools:
            return said
        numbers: list[bytes] = []
        for one in asked:
            self._count = number = self._count + 1
            self._open[number] = None
            if one:
                self._known[one] = number
            numbers.append(b"%d" % number)
        for one in answered:
            # The number of the call that is answered: by its id, else the first still open.
            if (known := self._known.get(one or "")) is None:
                self.unasked += [one] if one else []
                known = next(iter(self._open), 0)
            self._open.pop(known, None)
            numbers.append(b"%d" % known)
        return bare + b",".join(numbers)
