"""A cache of messages: agents send the whole history with every call, so most messages repeat.

Calls share one copy of each message. So the memory of a conversation grows with its length and not
with the square of it, and the hash of a message is computed once. A history that continues one seen
before is read and hashed from there on: the latest of each conversation is kept for that.
"""

from hashlib import blake2b
from typing import Any

from otel_lightning.collector.derive.rows import Message
from otel_lightning.collector.derive.text.json_text import dumps

AT_MOST = 50_000
"""Number of messages in the cache. Above it the cache is emptied, so that it stays bounded."""
MOST_KEPT_TEXT = 64_000_000
"""Number of characters of the messages in the cache. Above it the cache is emptied, too."""
MOST_HASHED = 4_000
"""Number of inputs whose hashes are kept, to go on from them. Above it they are forgotten."""
MOST_TEXT = 16_000_000
"""Characters of the texts of histories that are kept, to read on from them."""
MARK = 48
"""Characters at the end of a history's text by which it is looked up."""
LOOK_BACK = 8
"""Messages at the end of a text that may be new since the history that it continues."""
STARTS = '{"role"'
"""How a message begins in most texts. It cannot be inside a string, where quotes are escaped."""


class Repeated(dict[str, Any]):
    """A message that several calls share. Copy it before changing it."""

    __slots__ = ("is_whole", "turn")

    turn: Any
    """What `histories` makes of it; None before."""
    is_whole: bool
    """Whether it is known to be more than an outline: it holds its text or arguments."""


_kept: dict[Any, Repeated] = {}
hashed: dict[int, tuple[list[Message], Any]] = {}
"""The last inputs, with what `histories` made of them, by the `id()` of their last message."""
_texts: dict[str, tuple[str, list[Message]]] = {}
"""The last histories read from text, without the closing bracket, by the end of that."""
_size = 0  # characters in `_texts`
_kept_size = 0  # characters in `_kept`


def resume(text: str) -> tuple[list[Message], str] | None:
    """Find the history that a text of messages continues.

    Args:
        text: A JSON array of messages.

    Returns:
        The messages of the history, and what follows as a JSON array; None if no text before was
        the beginning of this one.
    """
    global _size  # noqa: PLW0603 - it belongs to the cache
    if not _texts:
        return None
    start = end = len(text) - 1
    for _ in range(LOOK_BACK + 1):
        kept = _texts.get(text[max(end - MARK, 0) : end])
        if (
            kept is not None
            and len(kept[0]) == end
            and text[end] in ",]"
            and text.startswith(kept[0])
        ):
            if start < len(text) - 1:  # it is needed once: the next text continues this one
                del _texts[text[max(end - MARK, 0) : end]]
                _size -= end
            return kept[1], "[" + text[start:]
        start = text.rfind(STARTS, 0, start)
        if start <= 1:
            return None
        end = start - (2 if text[start - 2 : start] == ", " else 1)
    return None


def remember(sent: list[Message], hashes: Any) -> None:
    """Keep what `histories` made of an input, for the calls that continue it."""
    if len(hashed) >= MOST_HASHED:
        hashed.clear()
    hashed[id(sent[-1])] = sent, hashes


def note(text: str, history: list[Message]) -> None:
    """Keep what was read of a text for the texts that continue it."""
    global _size  # noqa: PLW0603 - it belongs to the cache
    if _size + len(text) > MOST_TEXT:
        _texts.clear()
        _size = 0
    begin = text[:-1]
    before = _texts.get(begin[-MARK:])
    _size += len(begin) - (len(before[0]) if before else 0)
    _texts[begin[-MARK:]] = begin, history


def known(value: Any) -> Message | None:
    """Return the copy of a message as it came, if that is one plain text like one of the kept."""
    if type(value) is not dict or "parts" not in value:
        return None
    try:
        (part,) = value["parts"]
        kept = _kept.get(_key_of_text(value["role"], part, part["content"]))
    except (KeyError, TypeError, ValueError):
        return None
    return kept if kept is not None and kept == value else None


def one_copy(message: Message) -> Message:
    """Return the copy that stands for a message and all that equal it."""
    global _kept_size  # noqa: PLW0603 - it belongs to the cache
    if type(message) is Repeated:
        return message
    key = _key(message)
    kept = _kept.get(key)
    if kept is not None and type(key) is tuple and len(key) > MOST_EXACT and kept != message:
        key = _digest(message)
        kept = _kept.get(key)
    if kept is None:
        if len(_kept) >= AT_MOST or _kept_size > MOST_KEPT_TEXT:
            _kept.clear()
            _kept_size = 0
        _kept_size += length(message)
        kept = _kept[key] = Repeated(message)
        kept.turn, kept.is_whole = None, False
    return kept


def forget() -> None:
    """Empty all caches, once the calls that hold the messages are written."""
    global _size, _kept_size  # noqa: PLW0603 - they belong to the cache
    _kept.clear()
    _kept_size = 0
    hashed.clear()
    _texts.clear()
    _size = 0


def length(message: Message) -> int:
    """Return the number of characters of a message's texts."""
    size = 0
    for part in message["parts"]:
        for value in part.values():
            if type(value) is str:
                size += len(value)
    return size


def _key(message: Message) -> Any:
    """Return what equal messages share: their texts, where they hold nothing else, or a hash."""
    parts = message["parts"]
    if len(message) != len(("role", "parts")):
        return _digest(message)
    if len(parts) == 1:
        part = parts[0]
        kind = part["type"]
        if kind == "text" and len(part) == len(("type", "content")):
            if type(text := part.get("content")) is str:
                return _key_of_text(message["role"], part, text)
        elif kind == "tool_call_response" and len(part) == len(("type", "id", "response")):
            call_id, text = part.get("id"), part.get("response")
            if type(call_id) is str and type(text) is str:
                return message["role"], call_id, text
    return _key_of_calls(message["role"], parts) or _digest(message)


def _key_of_text(role: str, part: dict[str, Any], text: str) -> tuple[str | None, ...]:
    """Return the key of a plain text. Each order of a part's keys is written as it came."""
    return (role, text) if next(iter(part)) == "type" else (role, text, None)


def _key_of_calls(role: str, parts: list[dict[str, Any]]) -> tuple[Any, ...] | None:
    """Return the ids, names and texts of the tool calls of a message that has nothing else.

    The arguments were parsed from the texts, mostly: compare two messages with this key.
    """
    key: list[Any] = [role]
    for part in parts:
        if len(part) != CALL_KEYS or type(text := part.get("arguments_raw")) is not str:
            return None
        if part["type"] != "tool_call" or "arguments" not in part:
            return None
        key += [part.get("id"), part.get("name"), text]
    return tuple(key) if len(key) > MOST_EXACT else None


def _digest(message: Message) -> bytes:
    return blake2b(dumps(message), digest_size=16).digest()


CALL_KEYS = len(("type", "id", "name", "arguments", "arguments_raw"))
MOST_EXACT = len(("role", "id", "response"))
"""Keys of at most this many texts hold all that a message says."""
