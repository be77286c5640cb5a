"""A memory of messages: agents send the whole history with every call, so most messages repeat.

Calls share one copy of each message. So the memory of a conversation grows with its length and not
with the square of it, and the hash of a message is computed once. A history that continues one seen
before is read and hashed from there on: the latest of each conversation is kept for that.

A memory belongs to the batches that are derived together. It changes how fast they are derived, and
never the rows: without a memory, the rows are the same.
"""

from hashlib import blake2b
from typing import Any

from otel_lightning.collector.derive.text.json_text import dumps

Message = dict[str, Any]
AT_MOST = 50_000
"""Maximum number of shared messages. Above it all are dropped, so that memory stays bounded."""
MOST_KEPT_TEXT = 64_000_000
"""Maximum number of characters of the shared messages. Above it all are dropped, too."""
MOST_HASHED = 4_000
"""Maximum number of inputs whose hashes are kept, to go on from them. Above it all are dropped."""
MOST_TEXT = 16_000_000
"""Maximum number of characters of the texts of histories that are kept, to read on from them."""
MARK = 48
"""Number of characters at the end of a history's text by which it is looked up."""
LOOK_BACK = 8
"""Number of messages at the end of a text that may be new since the history that it continues."""
STARTS = '{"role"'
"""Prefix of a message in most texts. It cannot be inside a string, where quotes are escaped."""


class SharedMessage(dict[str, Any]):
    """A message that several calls share. Copy it before changing it."""

    __slots__ = ("hashes", "is_whole")

    hashes: Any
    """The hashes that `histories` computed of it; None before."""
    is_whole: bool
    """Whether it is known to be more than an outline: it holds its text or arguments."""


class MessageMemory:
    """The messages, hashes and texts of histories that were read before."""

    def __init__(self) -> None:
        """Begin without messages."""
        self._shared: dict[Any, SharedMessage] = {}
        self._shared_size = 0
        """Number of characters in `_shared`."""
        self.hashed: dict[int, tuple[list[Message], Any]] = {}
        """The last inputs, with the hashes that `histories` computed of them, by the `id()` of
        their last message."""
        self._texts: dict[str, tuple[str, list[Message]]] = {}
        """The last histories read from text, without the closing bracket, by their last characters.
        """
        self._texts_size = 0
        """Number of characters in `_texts`."""

    def clear(self) -> None:
        """Drop everything, once the calls that hold the messages are written."""
        self._shared.clear()
        self._shared_size = 0
        self.hashed.clear()
        self._texts.clear()
        self._texts_size = 0

    def resume(self, text: str) -> tuple[list[Message], str] | None:
        """Find the history that a text of messages continues.

        Args:
            text: A JSON array of messages.

        Returns:
            The messages of the history, and what follows as a JSON array; None if no text before
            was the beginning of this one.
        """
        if not self._texts:
            return None
        # Each round assumes that the last messages are new: one more in each. `end` is where the
        # earlier text would end, `start` where the new messages begin, at first the closing
        # bracket.
        start = end = len(text) - 1
        for _ in range(LOOK_BACK + 1):
            remembered = self._texts.get(text[max(end - MARK, 0) : end])
            if (
                remembered is not None
                and len(remembered[0]) == end
                and text[end] in ",]"
                and text.startswith(remembered[0])
            ):
                if start < len(text) - 1:  # it is needed once: the next text continues this one
                    del self._texts[text[max(end - MARK, 0) : end]]
                    self._texts_size -= end
                return remembered[1], "[" + text[start:]
            # Back to the beginning of the message before, and over the comma in front of it.
            # Python's `json.dumps` writes a space behind the comma.
            start = text.rfind(STARTS, 0, start)
            if start <= 1:
                return None
            end = start - (2 if text[start - 2 : start] == ", " else 1)
        return None

    def keep_text(self, text: str, history: list[Message]) -> None:
        """Keep the messages that were read from a text, for the texts that continue it."""
        if self._texts_size + len(text) > MOST_TEXT:
            self._texts.clear()
            self._texts_size = 0
        # Without the bracket, which the longer text does not have at this place.
        begin = text[:-1]
        before = self._texts.get(begin[-MARK:])
        self._texts_size += len(begin) - (len(before[0]) if before else 0)
        self._texts[begin[-MARK:]] = begin, history

    def keep_hashes(self, sent: list[Message], hashes: Any) -> None:
        """Keep the hashes that `histories` computed of an input, for the calls that continue it."""
        if len(self.hashed) >= MOST_HASHED:
            self.hashed.clear()
        self.hashed[id(sent[-1])] = sent, hashes

    def known(self, value: Any) -> Message | None:
        """Return the shared copy of a received message that is one plain text; None if it has none.

        A fast path: it returns the same message as reading `value` and sharing the result.
        """
        if type(value) is not dict or "parts" not in value:
            return None
        try:
            (part,) = value["parts"]
            shared = self._shared.get(_key_of_text(value["role"], part, part["content"]))
        except (KeyError, TypeError, ValueError):
            return None
        # The key lacks other fields, such as a finish reason, so the whole message is compared.
        return shared if shared is not None and shared == value else None

    def one_copy(self, message: Message) -> Message:
        """Return the copy that stands for a message and all that equal it."""
        if type(message) is SharedMessage:
            return message
        parts = message["parts"]
        if len(parts) == 1 and len(message) == MESSAGE_KEYS:
            key, size = _key_of_part(message["role"], parts[0])
        else:
            key, size = None, 0
        if key is None:
            key, size = _key(message), length(message)
        shared = self._shared.get(key)
        # The same texts of arguments were parsed differently here: this message is kept by its
        # digest.
        if (
            shared is not None
            and type(key) is tuple
            and len(key) > MOST_EXACT
            and shared != message
        ):
            key = _digest(message)
            shared = self._shared.get(key)
        if shared is None:
            # Calls that were read keep their messages; only later ones get new copies.
            if len(self._shared) >= AT_MOST or self._shared_size > MOST_KEPT_TEXT:
                self._shared.clear()
                self._shared_size = 0
            self._shared_size += size
            shared = self._shared[key] = SharedMessage(message)
            shared.hashes, shared.is_whole = None, False
        return shared


def length(message: Message) -> int:
    """Return the number of characters of a message's texts."""
    size = 0
    for part in message["parts"]:
        for value in part.values():
            if type(value) is str:
                size += len(value)
    return size


def _key(message: Message) -> Any:
    """Return the key of a message: the texts of its tool calls, or a hash."""
    if len(message) != MESSAGE_KEYS:
        return _digest(message)
    return _key_of_calls(message["role"], message["parts"]) or _digest(message)


def _key_of_part(role: str, part: dict[str, Any]) -> tuple[Any, int]:
    """Return the texts of a message with one part, and their length; (None, 0) for other parts."""
    kind = part["type"]
    if kind == "text" and len(part) == len(("type", "content")):
        if type(text := part.get("content")) is str:
            return _key_of_text(role, part, text), len(text)
    elif kind == "tool_call_response" and len(part) == len(("type", "id", "response")):
        call_id, text = part.get("id"), part.get("response")
        if type(call_id) is str and type(text) is str:
            return (role, call_id, text), len(text)
    return None, 0


def _key_of_text(role: str, part: dict[str, Any], text: str) -> tuple[str | None, ...]:
    """Return the key of a plain text: another one if the keys of its part come in another order.

    Messages are stored with their keys in the order in which they came.
    """
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


MESSAGE_KEYS = len(("role", "parts"))
CALL_KEYS = len(("type", "id", "name", "arguments", "arguments_raw"))
MOST_EXACT = len(("role", "id", "response"))
"""Keys of at most this many texts hold all that a message says."""
