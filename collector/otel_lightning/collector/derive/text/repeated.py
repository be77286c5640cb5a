"""A cache of messages: agents send the whole history with every call, so most messages repeat.

Calls share one copy of each message. So the memory of a conversation grows with its length and not
with the square of it, and the hash of a message is computed once.
"""

from hashlib import blake2b
from typing import Any

from otel_lightning.collector.derive.rows import Message
from otel_lightning.collector.derive.text.json_text import dumps

AT_MOST = 50_000
"""Number of messages in the cache. Above it the cache is emptied, so that it stays bounded."""


class Repeated(dict[str, Any]):
    """A message that several calls share. Copy it before changing it."""

    __slots__ = ("turn",)

    turn: Any
    """What `histories` makes of it."""


_kept: dict[Any, Repeated] = {}


def known(value: Any) -> Message | None:
    """Return the copy of a message as it came, if that is one plain text like one of the kept."""
    try:
        (part,) = value["parts"]
        kept = _kept.get((value["role"], part["content"]))
    except (KeyError, TypeError, ValueError):
        return None
    return kept if kept is not None and kept == value else None


def one_copy(message: Message) -> Message:
    """Return the copy that stands for a message and all that equal it."""
    if type(message) is Repeated:
        return message
    key = _key(message)
    kept = _kept.get(key)
    if kept is None:
        if len(_kept) >= AT_MOST:
            _kept.clear()
        kept = _kept[key] = Repeated(message)
    return kept


def forget() -> None:
    """Empty the cache, once the calls that hold the messages are written."""
    _kept.clear()


def _key(message: Message) -> Any:
    """Return what equal messages share: their texts, where they hold nothing else, or a hash."""
    parts = message["parts"]
    if len(message) == len(("role", "parts")) and len(parts) == 1:
        part = parts[0]
        said = [part.get(key) for key in _TEXTS.get(part["type"], ())]
        if len(said) + 1 == len(part) and all(type(one) is str for one in said):
            return message["role"], *said
    return blake2b(dumps(message), digest_size=16).digest()


_TEXTS = {
    "text": ("content",),
    "tool_call_response": ("id", "response"),
}
"""What a part of a kind holds beside its type, in most messages."""
