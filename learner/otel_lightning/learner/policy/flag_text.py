"""Change values inside a JSON text and keep every other character, so that diffs stay small."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

DECODER = json.JSONDecoder()
SPACE = " \t\r\n"


class Member(NamedTuple):
    """One `"name": value` of an object, as positions in the text."""

    name: str
    start: int
    value_start: int
    end: int


def with_members(text: str, path: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """Set members of the object at `path`: replace existing members and append new ones.

    Args:
        text: Valid JSON text.
        path: Names that lead to the object, such as `("flags", "prompt")`.
        values: New value of each member; a value that equals the old one changes no character.

    Returns:
        The text with the new values, in the indentation of the object.

    Example:
        >>> with_members('{"a": {"b": 1,  "c": 2}}', ("a",), {"b": 3})
        '{"a": {"b": 3,  "c": 2}}'
    """
    # The text is scanned again for each value, because every replacement moves the positions behind
    # it.
    for name, value in values.items():
        start = _find(text, path)
        there = {member.name: member for member in _members(text, start)}
        if name in there:
            old = there[name]
            if json.loads(text[old.value_start : old.end]) != value:
                new = _written(text, old, value)
                text = text[: old.value_start] + new + text[old.end :]
        else:
            text = _appended(text, start, list(there.values()), (name, value))
    return text


def without_member(text: str, path: tuple[str, ...], name: str) -> str:
    """Remove a member of the object at `path`, with its comma.

    Args:
        text: Valid JSON text.
        path: Names that lead to the object.
        name: Name of the member, which the object has.

    Returns:
        The text as it was before the member was appended.

    Example:
        >>> without_member('{"a": {"b": 1,  "c": 2}}', ("a",), "c")
        '{"a": {"b": 1}}'
    """
    start = _find(text, path)
    members = list(_members(text, start))
    place = max(i for i, member in enumerate(members) if member.name == name)
    if place:
        first, last = members[place - 1].end, members[place].end
    elif len(members) > 1:
        first, last = members[0].start, members[1].start
    else:
        first, last = members[0].start, members[0].end
    return text[:first] + text[last:]


def _find(text: str, path: tuple[str, ...]) -> int:
    start = _skip(text, 0)
    for name in path:
        # The last of several members with one name counts, as for `json.loads`.
        start = {member.name: member.value_start for member in _members(text, start)}[name]
    return start


def _members(text: str, start: int) -> Iterator[Member]:
    """Yield the members of the object that begins at position `start`."""
    at = _skip(text, start + 1)
    while text[at] != "}":
        name, after = DECODER.raw_decode(text, at)
        value_start = _skip(text, _skip(text, after) + 1)  # after the colon
        _, end = DECODER.raw_decode(text, value_start)
        yield Member(name, at, value_start, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def _written(text: str, member: Member, value: Any, *, was_there: bool = True) -> str:
    """Format a value as its place asks for it.

    It goes on one line if the old value or the whole object is on one; else it has the indentation
    of its member, with lists of plain values, such as weights, on one line each.
    """
    # None: the member does not begin its line, so the object is written on one line.
    margin = _margin(text, member.start)
    on_one_line = was_there and "\n" not in text[member.value_start : member.end]
    if margin is None or on_one_line:
        return json.dumps(value, ensure_ascii=False)
    step = "\t" if margin.startswith("\t") else _step(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    return _on_lines(value, newline + margin, step)


def _on_lines(value: Any, start: str, step: str) -> str:
    """Write an object, or a list of lists or objects, with one item on each line.

    Args:
        value: What to write.
        start: The line break and the indentation of the line that the value is on.
        step: One level of indentation.
    """
    inside = start + step
    if isinstance(value, dict) and value:
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}: {_on_lines(one, inside, step)}"
            for name, one in value.items()
        ]
        return f"{{{inside}{f',{inside}'.join(parts)}{start}}}"
    if isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        parts = [_on_lines(one, inside, step) for one in value]
        return f"[{inside}{f',{inside}'.join(parts)}{start}]"
    return json.dumps(value, ensure_ascii=False)


def _margin(text: str, at: int) -> str | None:
    """Return the white space before a member that begins its line; None if none begins there."""
    margin = text[text.rfind("\n", 0, at) + 1 : at]
    # White space before the very first line's member is no indentation of an object.
    return margin if "\n" in text[:at] and not margin.strip() else None


def _step(text: str) -> str:
    """Return the indentation of the first indented line; two spaces if no line is indented."""
    for line in text.splitlines():
        margin = line[: len(line) - len(line.lstrip())]
        if margin and line.strip():
            return margin
    return "  "


def _appended(text: str, start: int, members: list[Member], new: tuple[str, Any]) -> str:
    name, value = json.dumps(new[0], ensure_ascii=False), new[1]
    if not members:
        written = json.dumps(value, ensure_ascii=False)
        return f"{text[: start + 1]}{name}: {written}{text[start + 1 :].lstrip()}"
    last = members[-1]
    margin = _margin(text, last.start)
    newline = "\r\n" if "\r\n" in text else "\n"
    between = ", " if margin is None else f",{newline}{margin}"
    written = _written(text, last._replace(end=last.value_start), value, was_there=False)
    return f"{text[: last.end]}{between}{name}: {written}{text[last.end :]}"
