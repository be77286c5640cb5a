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
        values: New value of each member. Inside objects and lists, only what differs is replaced.

    Returns:
        The text with the new values; what is added has the indentation of its object.

    Example:
        >>> with_members('{"a": {"b": 1,  "c": 2}}', ("a",), {"b": 3})
        '{"a": {"b": 3,  "c": 2}}'
    """
    # The text is scanned again for each value, because every replacement moves the positions behind
    # it.
    for name, value in values.items():
        start = _find(text, path)
        members = {member.name: member for member in _members(text, start)}
        if name in members:
            text = _changed(text, members[name], value)
        else:
            text = _appended(text, start, list(members.values()), (name, value))
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
    return _without(text, _find(text, path), name)


def member_text(text: str, path: tuple[str, ...], name: str) -> str | None:
    """Return the text of a member's value, as it is written; None if the object lacks it.

    Example:
        >>> member_text('{"a": {"b": [1,  2]}}', ("a",), "b")
        '[1,  2]'
    """
    members = {member.name: member for member in _members(text, _find(text, path))}
    return text[members[name].value_start : members[name].end] if name in members else None


def with_member_text(text: str, path: tuple[str, ...], name: str, written: str | None) -> str:
    """Set the text of a member's value, which `member_text` returned; None removes the member.

    Example:
        >>> with_member_text('{"a": {"b": 3}}', ("a",), "b", "[1,  2]")
        '{"a": {"b": [1,  2]}}'
    """
    if member_text(text, path, name) is None:
        return text if written is None else with_members(text, path, {name: json.loads(written)})
    if written is None:
        return without_member(text, path, name)
    members = {member.name: member for member in _members(text, _find(text, path))}
    return text[: members[name].value_start] + written + text[members[name].end :]


def _without(text: str, start: int, name: str) -> str:
    """Remove a member of the object that begins at position `start`."""
    members = list(_members(text, start))
    index = max(i for i, member in enumerate(members) if member.name == name)
    if index:
        first, last = members[index - 1].end, members[index].end
    elif len(members) > 1:
        first, last = members[0].start, members[1].start
    else:
        first, last = members[0].start, members[0].end
    return text[:first] + text[last:]


def _changed(text: str, member: Member, value: Any) -> str:
    """Replace the value of a member, or only the parts of it that differ."""
    old = json.loads(text[member.value_start : member.end])
    if old == value:
        return text
    if isinstance(old, dict) and isinstance(value, dict) and old.keys() & value.keys():
        return _changed_object(text, member.value_start, value)
    if isinstance(old, list) and isinstance(value, list) and len(old) == len(value):
        # From the last item to the first, because a replacement moves the positions behind it.
        for item, new in reversed(list(zip(_items(text, member), value, strict=True))):
            text = _changed(text, item, new)
        return text
    return text[: member.value_start] + _written(text, member, value) + text[member.end :]


def _changed_object(text: str, start: int, value: Mapping[str, Any]) -> str:
    """Change, remove and append members of the object that begins at position `start`."""
    for name in {member.name for member in _members(text, start)} - value.keys():
        while any(member.name == name for member in _members(text, start)):
            text = _without(text, start, name)
    for name, new in value.items():
        members = list(_members(text, start))
        by_name = {member.name: member for member in members}
        if name in by_name:
            text = _changed(text, by_name[name], new)
        else:
            text = _appended(text, start, members, (name, new))
    return text


def _items(text: str, whole: Member) -> Iterator[Member]:
    """Yield the items of a list, as members without a name of their own."""
    at = _skip(text, whole.value_start + 1)
    while text[at] != "]":
        _, end = DECODER.raw_decode(text, at)
        yield Member(whole.name, at, at, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


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
            f"{json.dumps(name, ensure_ascii=False)}: {_on_lines(item, inside, step)}"
            for name, item in value.items()
        ]
        return f"{{{inside}{f',{inside}'.join(parts)}{start}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        parts = [_on_lines(item, inside, step) for item in value]
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
