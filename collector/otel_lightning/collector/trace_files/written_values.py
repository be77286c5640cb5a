"""Values that a table holds as text: JSON, or literals of Python (pandas) or ClickHouse.

A cell of CSV has text only. So lists and objects are written there as `json.dumps()`, `repr()` or
ClickHouse writes them: `{"a":1}`, `{'a': None}`, `{'a':'b'}`.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

import orjson

QUOTED = r"""(?P<quoted>'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")"""
LITERAL = re.compile(rf"{QUOTED}|\b(?P<word>None|True|False|nan)\b", re.DOTALL)
STARTS = {"{", "["}
WORDS = {"None": "null", "True": "true", "False": "false", "nan": "null"}


def structure(value: Any) -> Any:
    r"""Return the list or object that a text holds, and any other value as it is.

    Example:
        >>> structure("{'a': [None, 'it\\'s']}")
        {'a': [None, "it's"]}
        >>> structure("plain {text}")
        'plain {text}'
    """
    if not isinstance(value, str) or value[:1] not in STARTS:
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return _spelled(value)


def literal(value: Any) -> Any:
    """Return the list or object that a literal of Python spells, and any other value as it is.

    So JSON stays a text: pandas writes the literal of a list, and a text as it is.

    Example:
        >>> literal("[{'a': True}]")
        [{'a': True}]
        >>> literal('{"a": true}')
        '{"a": true}'
    """
    if not isinstance(value, str) or value[:1] not in STARTS or _is_json(value):
        return value
    return _spelled(value)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _spelled(text: str) -> Any:
    try:
        return orjson.loads(LITERAL.sub(_as_json, text))
    except (ValueError, SyntaxError, TypeError):
        return text


def _as_json(match: re.Match[str]) -> str:
    if match["word"]:
        return WORDS[match["word"]]
    # ClickHouse leaves line breaks in texts as they are, which no literal of Python may have.
    text = match["quoted"].replace("\n", "\\n").replace("\r", "\\r")
    return orjson.dumps(ast.literal_eval(text)).decode()


def flat(attributes: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return attributes with the names of nested objects joined by dots.

    Example:
        >>> flat({"gen_ai": {"request": {"model": "m"}}, "x": [1]})
        {'gen_ai.request.model': 'm', 'x': [1]}
    """
    joined: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, Mapping):
            joined |= flat(value, f"{prefix}{name}.")
        else:
            joined[f"{prefix}{name}"] = value
    return joined
