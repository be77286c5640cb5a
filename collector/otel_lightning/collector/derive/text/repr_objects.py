"""Objects that a package wrote as the `repr()` of Python's data classes: `Tool(name='sun')`."""

import ast
import re
from typing import Any

from otel_lightning.collector.derive.text.json_text import LONGEST_LITERAL, QUOTED

CLASS = "class"
"""The key under which an object has the name of its class."""
# An enum's member is its value, `<ChatRole.USER: 'user'>`; other objects, such as `<function sun at
# 0x7f…>` or `<function run.<locals>.<lambda> at 0x7f…>`, are unknown. Texts in quotes are left as
# they are.
_ANGLES = re.compile(rf"{QUOTED}|<[\w.]+: (?P<member>'[^']*'|\d+)>|<(?:[^<>]|<\w+>)*>")


def parse(text: object) -> Any:
    """Return the object that a text spells: dictionaries with the fields, and `class`.

    Args:
        text: The `repr()` of an object. Any other value is no object.

    Returns:
        None if the text is anything but a `repr()` of names, fields and literals.

    Example:
        >>> parse("Result(of=Call(name='add'), role=<Role.TOOL: 'tool'>)")
        {'class': 'Result', 'of': {'class': 'Call', 'name': 'add'}, 'role': 'tool'}
    """
    if not isinstance(text, str) or not text.endswith(")") or len(text) > LONGEST_LITERAL:
        return None
    try:
        return _value(ast.parse(_ANGLES.sub(_plain, text), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def message(text: str) -> dict[str, Any] | None:
    """Return the message that a text spells, as the `str()` or the `repr()` of Pydantic's models.

    Fields that are not set are left out.

    Example:
        >>> message("role='assistant' content='Yes.' tool_calls=Unset()")
        {'role': 'assistant', 'content': 'Yes.'}
        >>> message("role='assistant' or another") is None
        True
    """
    if "role='" not in text:
        return None
    fields = parse(text if text.endswith(")") and text[:1].isupper() else f"M({_listed(text)})")
    if not isinstance(fields, dict) or not isinstance(fields.get("role"), str):
        return None
    unset = {CLASS: "Unset"}
    return {key: value for key, value in fields.items() if key != CLASS and value != unset}


def _listed(text: str) -> str:
    """Put commas between the fields of an object that are separated by spaces alone."""
    depth = 0

    def with_comma(match: re.Match[str]) -> str:
        nonlocal depth
        depth += bool(match["opens"]) - bool(match["closes"])
        return ", " if match["gap"] and depth == 0 else match[0]

    return _FIELDS.sub(with_comma, text)


_FIELDS = re.compile(rf"{QUOTED}|(?P<opens>[\[({{])|(?P<closes>[\])}}])|(?P<gap> )(?=\w+=)")
"""Matches what separates the fields of an object, and the texts and brackets to skip."""


def _plain(match: re.Match[str]) -> str:
    return match["quoted"] or match["member"] or "None"


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        fields = {one.arg: _value(one.value) for one in node.keywords if one.arg}
        return {CLASS: node.func.id, **fields}
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        keys = [ast.literal_eval(key) for key in node.keys if key is not None]
        return dict(zip(map(str, keys), map(_value, node.values), strict=True))
    return ast.literal_eval(node)
