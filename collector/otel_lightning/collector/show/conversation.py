"""Which messages of a model call are new.

Each call of an agent repeats the earlier messages of its conversation. So a message is new only if
the call holds it more often than any earlier call did.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Message = Mapping[str, Any]
"""A message in the form of OpenTelemetry's GenAI conventions: `role` and `parts`."""
Part = Mapping[str, Any]

NO_ARGUMENTS = (None, "", "null")
"""Ways in which models write a tool call without arguments."""


class ShownMessages:
    """The messages that were shown so far."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ever: Counter[str] = Counter()
        self._here: Counter[str] = Counter()

    def begin_call(self) -> None:
        """Begin to look at the messages of the next call."""
        self._here.clear()

    def is_new(self, message: Message) -> bool:
        """Count a message of the current call; tell whether it was not shown before."""
        mark = _mark(message)
        self._here[mark] += 1
        is_new = self._here[mark] > self._ever[mark]
        self._ever[mark] = max(self._ever[mark], self._here[mark])
        return is_new


def read_messages(text: str | None) -> list[dict[str, Any]]:
    """Parse a column of messages; NULL is no messages."""
    return json.loads(text) if text else []


def text_or_json(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def arguments_of(call: Part) -> Any:
    """Return the arguments of a tool call as JSON, or the text if the model wrote no valid JSON.

    Example:
        >>> arguments_of({"type": "tool_call", "arguments": None, "arguments_raw": "{oops"})
        '{oops'
    """
    if call.get("arguments") is not None:
        return call["arguments"]
    written = call.get("arguments_raw")
    return {} if written in NO_ARGUMENTS else written


def parts_of(messages: Iterable[Message], kind: str) -> list[Part]:
    """Return the parts of one type, for example `tool_call`, of all messages."""
    return [
        part
        for message in messages
        for part in message.get("parts") or ()
        if part.get("type") == kind
    ]


def _mark(message: Message) -> str:
    """Return a key that is equal for a message and its repetitions in later calls.

    The key has no ids, because some providers change them, and no reasoning, because most
    providers do not send it back.
    """
    parts = [_content(p) for p in message.get("parts") or () if p.get("type") != "reasoning"]
    return json.dumps([message.get("role"), parts], sort_keys=True)


def _content(part: Part) -> Any:
    kind = part.get("type")
    if kind == "tool_call":
        return part.get("name"), arguments_of(part)
    if kind == "tool_call_response":
        return part.get("name"), part.get("response")
    return {key: value for key, value in part.items() if key != "id"}
