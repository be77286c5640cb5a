"""The hashes of the content of one message, with and without the ids of tool calls."""

from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from otel_lightning.collector.derive.messages.hosted_tools import is_hosted
from otel_lightning.collector.derive.messages.message_memory import SharedMessage
from otel_lightning.collector.derive.messages.tool_parts import DENIED
from otel_lightning.collector.derive.rows import Message
from otel_lightning.collector.derive.text.json_text import dumps

TEXT_KEYS = len(("type", "content"))
TEXTS = 2
"""Number of texts of a message from which on they are joined."""
TOOL_PARTS = ("tool_call", "tool_call_response")
_SORTED = orjson.OPT_SORT_KEYS
ASSISTANT = "assistant"


class _Heads(dict[str, bytes]):
    """The bytes that a history's hash has before the hashes of a message's parts, by its role."""

    def __missing__(self, role: str) -> bytes:
        """Return the head of a role that is none of the usual ones."""
        return b"\0%s\0" % role.encode()


HEADS = _Heads(
    {role: b"\0%s\0" % role.encode() for role in ("system", "user", "assistant", "tool")}
)


class MessageHashes(NamedTuple):
    """The hashes of one message's parts, one after the other."""

    content: bytes
    """All parts but reasoning."""
    reasoning: bytes
    has_tools: bool
    tool_call_ids: tuple[str | None, ...]
    response_ids: tuple[str | None, ...]
    """The ids of the tool calls that it answers."""
    without_ids: bytes
    """The content without these ids."""


_HASHES: Callable[[Any], MessageHashes] = partial(tuple.__new__, MessageHashes)
"""Makes `MessageHashes` of a tuple of all fields, faster than `MessageHashes(…)`."""


def hashes_of(message: Message) -> MessageHashes:
    """Return the hashes of a message; those of a shared message are computed once."""
    if type(message) is not SharedMessage:
        return _hashed(message)
    if message.hashes is None:
        message.hashes = _hashed(message)
    hashes: MessageHashes = message.hashes
    return hashes


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
    for part in _whole_texts(message):
        if not _is_text(part):
            return None
        hashes += b"t" + sha256(part["content"].encode("utf-8", "replace")).digest()
    return hashes or None


def _is_text(part: dict[str, Any]) -> bool:
    """Return whether a part is text and nothing more."""
    is_alone = part["type"] == "text" and len(part) == TEXT_KEYS
    return is_alone and type(part.get("content")) is str


def _whole_texts(message: Message) -> list[dict[str, Any]]:
    """Return the parts of a message; of the assistant's, with neighbouring texts as one.

    Reasoning between two texts is not sent back, so they are neighbours, too.
    """
    if message["role"] != ASSISTANT:
        parts: list[dict[str, Any]] = message["parts"]
        return parts
    parts = _tool_calls_last(message["parts"])
    if [part["type"] for part in parts].count("text") < TEXTS:
        return parts
    whole: list[dict[str, Any]] = []
    last: dict[str, Any] | None = None
    for part in parts:
        if not _is_text(part):
            last = last if part["type"] == "reasoning" else None
            whole.append(part)
        elif last is not None:
            last["content"] += part["content"]
        else:
            last = {**part}  # a copy, which the texts after it are added to
            whole.append(last)
    return whole


def _tool_calls_last(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of an assistant's message, with its tool calls after all others.

    Chat completions have the text and the tool calls in two fields, so their order is a package's
    own. OpenTelemetry's package for OpenAI writes another one for a streamed answer than for the
    same message in the next input.
    """
    is_call = [part["type"] == "tool_call" for part in parts]
    in_order = sorted(is_call)
    return (
        parts
        if is_call == in_order
        else sorted(parts, key=lambda part: part["type"] == "tool_call")
    )


def whole_turns(messages: list[Message]) -> list[Message]:
    """Return the messages of a history, those of the assistant as one where a text is cut in two.

    Clients may send back each piece of a streamed text as a part, or as a message. A record of the
    answer has the whole text.
    """
    roles = [message["role"] for message in messages]
    if (ASSISTANT, ASSISTANT) not in pairwise(roles):
        return messages
    turns: list[Message] = []
    for message in messages:
        if turns and _continues_text(turns[-1], message):
            turns[-1] = {"role": ASSISTANT, "parts": turns[-1]["parts"] + message["parts"]}
        else:
            turns.append(message)
    return turns


def _continues_text(before: Message, message: Message) -> bool:
    """Return whether two messages are the assistant's, and a text follows a text."""
    if not before["role"] == message["role"] == ASSISTANT:
        return False
    return _begins_with_text(reversed(before["parts"])) and _begins_with_text(message["parts"])


def _begins_with_text(parts: Iterable[dict[str, Any]]) -> bool:
    first = next((part for part in parts if part["type"] != "reasoning"), None)
    return first is not None and _is_text(first)


def _hashed(message: Message) -> MessageHashes:
    if message["role"] == "tool":
        if (response := _one_response(message["parts"])) is not None:
            return response
    elif (content := texts(message)) is not None:
        return _HASHES((content, b"", False, (), (), b""))
    content = without_ids = reasoning = b""
    has_tools = False
    tool_call_ids: list[str | None] = []
    response_ids: list[str | None] = []
    for part in _whole_texts(message):
        kind = part["type"]
        if kind == "reasoning":
            reasoning += _hash(part)
        elif kind in TOOL_PARTS or is_hosted(kind):
            has_tools = True
            call_id = part.get("id") or None
            hashed = _hash_of_tool(part)
            without_ids += hashed
            content += b"%s#%s" % (hashed, str(call_id).encode(errors="replace"))
            # A tool that the provider ran has an id, but no message of the agent answers it.
            if kind == "tool_call":
                tool_call_ids.append(call_id)
            elif kind == "tool_call_response":
                response_ids.append(call_id)
        else:
            hashed = _hash(part)
            without_ids += hashed
            content += hashed
    return _HASHES(
        (
            content,
            reasoning,
            has_tools,
            tuple(tool_call_ids),
            tuple(response_ids),
            without_ids,
        )
    )


def _one_response(parts: list[dict[str, Any]]) -> MessageHashes | None:
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
    content = b"%s#%s" % (hashed, str(call_id).encode(errors="replace"))
    return _HASHES((content, b"", True, (), (call_id,), hashed))


def _hash_of_tool(part: dict[str, Any]) -> bytes:
    """Return the hash of a tool's part without its id, raw arguments and the mark of a denial."""
    alone = part.copy()
    # None of them is what the model said or got.
    alone.pop("id", None)
    alone.pop("arguments_raw", None)
    alone.pop(DENIED, None)
    try:
        text = orjson.dumps(alone, option=_SORTED)
    except TypeError:  # a whole number of more than 64 bits
        text = dumps(alone, sort_keys=True)
    return b"p" + sha256(text).digest()


def _hash(part: dict[str, Any]) -> bytes:
    """Return the hash of a part; its first byte is `t` for plain text and `p` for other parts."""
    content = part.get("content")
    if part["type"] == "text" and len(part) == TEXT_KEYS and type(content) is str:
        return b"t" + sha256(content.encode("utf-8", "replace")).digest()
    return b"p" + sha256(dumps(part, sort_keys=True)).digest()


class ToolCallNumbers:
    """The tool calls of one history by their numbers, which stand for their ids."""

    __slots__ = ("_by_id", "_count", "_unanswered", "unrequested_ids")

    def __init__(self) -> None:
        """Begin before the first message."""
        self._by_id: dict[str, int] = {}
        self._unanswered: dict[int, None] = {}
        """The numbers of the tool calls without a response, in order."""
        self._count = 0
        self.unrequested_ids: list[str] = []
        """The ids of responses that no tool call before them has."""

    def copy(self) -> "ToolCallNumbers":
        """Return a copy, to which the messages of another choice can be added."""
        twin = ToolCallNumbers()
        twin._by_id, twin._unanswered = dict(self._by_id), dict(self._unanswered)
        twin._count = self._count
        return twin

    def of(self, message: MessageHashes) -> bytes:
        """Return the content of a message with numbers in place of the ids of tool calls."""
        content, _, has_tools, tool_call_ids, response_ids, without_ids = message
        if not has_tools:
            return content
        numbers: list[bytes] = []
        for call_id in tool_call_ids:
            self._count = number = self._count + 1
            self._unanswered[number] = None
            if call_id:
                self._by_id[call_id] = number
            numbers.append(b"%d" % number)
        for call_id in response_ids:
            # The tool call with this id, or else the first one without a response.
            if (answered := self._by_id.get(call_id or "")) is None:
                self.unrequested_ids += [call_id] if call_id else []
                answered = next(iter(self._unanswered), 0)
            self._unanswered.pop(answered, None)
            numbers.append(b"%d" % answered)
        return without_ids + b",".join(numbers)
