"""Parse JSON from attribute texts: valid, truncated, invalid but readable, or a Python literal."""

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

LONGEST_LITERAL = 1_000_000
"""Maximum length, in characters, of a text that is parsed as a Python literal: the parser needs
many times the text's size in memory."""
QUOTED = r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
"""Regular expression of a string literal of Python, as the group `quoted`."""
LOOSE_STARTS = frozenset('{["NI-')
"""First characters of texts that may be invalid JSON, `NaN` and `Infinity` included."""
JSON_STARTS = frozenset('{["-0123456789tfnNI \t\r\n')
"""First characters of texts that may be JSON. All other texts are rejected without parsing."""

NEXT_MEMBER, COLON = re.compile(r'[\s,]*(?=")'), re.compile(r"\s*:\s*")
"""Stands before the name of a member of a JSON object, and before its value."""
_DECODER = json.JSONDecoder()


def parse(text: str | None) -> Any:
    """Return the JSON value of a text, or None if the text is not JSON."""
    if not text or text[0] not in JSON_STARTS:
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return _parse_loosely(text) if text[0] in LOOSE_STARTS else None


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object itself, and {} for any other value."""
    return value if isinstance(value, dict) else {}


def object_under(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the object under the first of these keys that holds one; {} if there is none."""
    for key in keys:
        if isinstance(inner := value.get(key), dict):
            return inner
    return {}


def _parse_loosely(text: str) -> Any:
    """Parse invalid JSON that its writer accepts: JavaScript's lone surrogates, Python's NaN."""
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    # Written again, so that a lone surrogate becomes `?`: UTF-8 has no bytes for it.
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """Return a value as compact JSON in UTF-8. Whole numbers may be larger than 64 bits."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else 0)
    except TypeError:
        return _dumps_large(value, sort_keys=sort_keys)


def _dumps_large(value: Any, *, sort_keys: bool) -> bytes:
    """Return JSON for whole numbers of any size; `NaN` and `Infinity` become null, as in orjson."""
    text = json.dumps(value, default=str)
    plain = json.loads(text, parse_constant=lambda _: None)
    return json.dumps(plain, sort_keys=sort_keys, ensure_ascii=False).encode(errors="replace")


def parse_literal(text: str) -> Any:
    """Return the value of a text that holds JSON or a Python literal, or None for any other text.

    Example:
        >>> parse_literal("{'city': 'Paris'}")
        {'city': 'Paris'}
    """
    value = parse(text)
    if value is not None or len(text) > LONGEST_LITERAL:
        return value
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def plain(text: str | None) -> str | None:
    """Return a text that is no array or object, not even a truncated one; None if there is none."""
    value = parse(text)
    if isinstance(value, str):
        return value
    return text if text and text[0] not in {"[", "{"} and text != "null" else None


def whole_members(text: str) -> dict[str, Any]:
    """Return the members of a JSON object whose end is missing: those before the one that is cut.

    Example:
        >>> whole_members('{"model": "m", "messages": [], "tools": [{"na')
        {'model': 'm', 'messages': []}
    """
    members: dict[str, Any] = {}
    place = 1
    try:
        while found := NEXT_MEMBER.match(text, place):
            name, place = _DECODER.raw_decode(text, found.end())
            if (colon := COLON.match(text, place)) is None:
                break
            members[name], place = _DECODER.raw_decode(text, colon.end())
    except (ValueError, RecursionError):
        pass
    return as_object(_parse_loosely(json.dumps(members)))


def is_cut(text: str | None) -> bool:
    """Return whether a text was truncated: it begins as JSON array or object but does not parse."""
    return text is not None and text[:1] in {"[", "{"} and parse(text) is None
