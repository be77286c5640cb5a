"""Messages of the GenAI conventions as parts that a page shows: one line of text each."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from otel_lightning.collector.show.conversation import arguments_of, text_or_json

MOST_CHARACTERS = 4000
"""Characters of a text on the page of a rollout; the page of its step shows more."""


class Part(NamedTuple):
    """A part of a message: its speaker, kind and text."""

    role: str
    kind: str
    name: str
    text: str
    left_out: int
    """Number of characters at the end that are left out."""


def parts(messages: str | None, max_characters: int = MOST_CHARACTERS) -> list[Part]:
    """Read messages in JSON.

    Args:
        messages: A JSON array; invalid JSON becomes one part with the text itself.
        max_characters: Most characters of a part's text.
    """
    if not messages:
        return []
    try:
        read = json.loads(messages)
    except (ValueError, RecursionError):
        return [_part("?", "text", "", messages, max_characters)]
    return list(_parts(read, max_characters))


def _parts(messages: Any, max_characters: int) -> Iterator[Part]:
    for message in messages if isinstance(messages, list) else [messages]:
        if not isinstance(message, dict):
            yield _part("?", "text", "", _text(message), max_characters)
            continue
        role = _text(message.get("role") or "?")
        parts = message.get("parts")
        if not isinstance(parts, list):
            parts = [{"type": "text", "content": parts if parts is not None else message}]
        for one in parts:
            yield _one(role, one if isinstance(one, dict) else {"content": one}, max_characters)


def _one(role: str, part: Mapping[str, Any], max_characters: int) -> Part:
    kind = _text(part.get("type") or "text")
    if kind == "tool_call":
        return _part(role, kind, _text(part.get("name")), _text(arguments_of(part)), max_characters)
    if kind == "tool_call_response":
        answer = part.get("response", part.get("result", part.get("content")))
        return _part(role, kind, _text(part.get("name")), _text(answer), max_characters)
    if kind == "blob":  # data that a page never loads
        modality = _text(part.get("modality") or kind)
        named = _text(part.get("mime_type") or modality)
        return _part(role, modality, "", f"[{named}]", max_characters)
    text = part.get("content", part.get("text"))
    if text is None:  # a link to an image or a file: shown as JSON, never loaded
        text = {key: value for key, value in part.items() if key != "type"}
    return _part(role, kind, "", _text(text), max_characters)


def _part(role: str, kind: str, name: str, text: str, max_characters: int) -> Part:
    return Part(role, kind, name, text[:max_characters], max(len(text) - max_characters, 0))


def _text(value: Any) -> str:
    return "" if value is None else text_or_json(value)
