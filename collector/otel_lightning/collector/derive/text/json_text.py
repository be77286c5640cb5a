"""JSON as it is found in the text of attributes: whole, cut, loosely written, or Python's."""

import ast
import json
from typing import Any

import orjson

LONGEST_LITERAL = 1_000_000
"""Longer texts are not parsed as Python literals: the parser takes many times the text's size."""
QUOTED = r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
LOOSE_STARTS = frozenset('{["NI-')
JSON_STARTS = frozenset('{["-0123456789tfnNI \t\r\n')


def parse(text: str | None) -> Any:
    """Return the JSON value of a text, or None where there is none."""
    if not text or text[0] not in JSON_STARTS:
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return _parse_loosely(text) if text[0] in LOOSE_STARTS else None


def _parse_loosely(text: str) -> Any:
    """Parse what is JSON to its writer only: JavaScript's half characters, Python's NaN."""
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """Return a value as compact JSON. Whole numbers may be larger than 64 bits."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else 0)
    except TypeError:
        return json.dumps(value, sort_keys=sort_keys, ensure_ascii=False, default=str).encode(
            errors="replace"
        )


def parse_literal(text: str) -> Any:
    """Return the value of a text that holds JSON or Python's spelling of it, else None.

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


def is_cut(text: str | None) -> bool:
    """Tell whether a text began as a JSON array or object but does not parse: it was cut."""
    return text is not None and text[:1] in {"[", "{"} and parse(text) is None
