"""Functions that read the flattened messages of one shape, compiled for it.

A compiled function reads each ordinary message by straight-line code: a plain text, a tool's
response, tool calls. It looks at the values as well, and leaves any other message to a function
that it is given, which rebuilds the message.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import orjson

from otel_lightning.collector.derive.attributes.flat_places import Place
from otel_lightning.collector.derive.messages import finish
from otel_lightning.collector.derive.messages.content_blocks import ELIDED
from otel_lightning.collector.derive.messages.one_message import ROLES
from otel_lightning.collector.derive.messages.tool_parts import distinct_calls, parsed_arguments
from otel_lightning.collector.derive.rows import Attributes, Message

History = Callable[[Attributes], tuple[list[Message], bool]]
Choices = Callable[[Attributes], list[Message]]
BLOCK_STARTS = ("[", " ", "\n", "\r", "\t")
"""First characters of contents that may be a JSON array of blocks."""
NULL = "null"
"""The content of a message without text, as JavaScript writes it."""
SPEAKERS = {word: role for word, role in ROLES.items() if role != "tool"}
WRITTEN_CALL = '"function_call"'
"""Occurs in a text that may be a tool call, see `messages`."""
REPR_TEXT = "Text"
"""Occurs near the beginning of a response that may be the `repr()` of a block of text."""
_GLOBALS: dict[str, Any] = {
    "speakers": SPEAKERS,
    "block_starts": frozenset(("", *BLOCK_STARTS)),
    "no_text": (NULL, ELIDED),
    "written_call": WRITTEN_CALL,
    "repr_text": REPR_TEXT,
    "loads": orjson.loads,
    "parsed_arguments": parsed_arguments,
    "distinct_calls": distinct_calls,
    "finish_reason": finish.reason,
}


class _Source:
    """The text of a function, and its globals: keys are values of these and no part of the text."""

    def __init__(self, **known: Any) -> None:
        self.lines = ["def read(a):", "    found = []"]
        self.known = {**_GLOBALS, **known}

    def add(self, lines: str, indent: int = 1) -> None:
        self.lines += ["    " * indent + line for line in lines.split("\n")]

    def name(self, value: Any) -> str:
        """Return the name of a global with this value."""
        name = f"v{len(self.known)}"
        self.known[name] = value
        return name

    def compiled(self) -> Any:
        exec("\n".join(self.lines), self.known)  # noqa: S102 - names of ours, see above
        return self.known["read"]


def history(
    places: Sequence[Place], other: Callable[[Place, Attributes], list[Message]]
) -> History:
    """Return a function that reads the messages of a history.

    Args:
        places: The places of the messages.
        other: Reads any other message.

    Returns:
        A function that returns the messages, and whether `messages.joined` may change them.
    """
    source = _Source(other=other)
    source.add(f"again = {_any_neighbours(places)}")
    for place in places:
        rest = f"found += other({source.name(place)}, a)\nagain = True"
        if place.calls and not place.reason:
            _add_calls(source, place, f'a[{source.name(place.role)}] != "assistant"', rest)
        elif place.content and place.role and not place.reason:
            (_add_response if place.call_id else _add_text)(source, place, rest)
        else:
            source.add(rest)
    source.add("return found, again")
    read: History = source.compiled()
    return read


def _any_neighbours(places: Sequence[Place]) -> bool:
    """Return whether a message of tool calls follows another one."""
    asking = [bool(place.calls) for place in places]
    return (True, True) in pairwise(asking)


def _add_text(source: _Source, place: Place, rest: str) -> None:
    source.add(
        f"role = speakers.get(a[{source.name(place.role)}])\n"
        f"text = a[{source.name(place.content)}]\n"
        "if (role is None or text[:1] in block_starts or text in no_text\n"
        '        or role == "assistant" and written_call in text):'
    )
    source.add(rest, 2)
    source.add("else:")
    source.add('found.append({"role": role, "parts": [{"type": "text", "content": text}]})', 2)


def _add_response(source: _Source, place: Place, rest: str) -> None:
    """Add the lines for a response; one without an id may get it from the tool call before it."""
    source.add(
        f"text = a[{source.name(place.content)}]\n"
        f"call_id = a[{source.name(place.call_id)}]\n"
        f'if (a[{source.name(place.role)}] != "tool" or not call_id or text[:1] in block_starts\n'
        "        or text in no_text or repr_text in text[:80]):"
    )
    source.add(rest, 2)
    source.add("else:")
    part = '{"type": "tool_call_response", "id": call_id, "response": text}'
    source.add(f'found.append({{"role": "tool", "parts": [{part}]}})', 2)


def _add_calls(source: _Source, place: Place, is_other: str, rest: str) -> None:
    ids, parts, checks = [], [], [is_other]
    for at, (call_id, name, arguments) in enumerate(place.calls):
        source.add(
            f"id{at} = a[{source.name(call_id)}]\n"
            f"name{at} = a[{source.name(name)}]\n"
            f"text{at} = a[{source.name(arguments)}]\n"
            "try:\n"
            f"    value{at} = loads(text{at})\n"
            "except ValueError:\n"
            f"    value{at} = parsed_arguments(text{at})"
        )
        checks.append(f'name{at}[:1] == "\'"')
        ids.append(f"id{at}")
        parts.append(
            f'{{"type": "tool_call", "id": id{at} or None, "name": name{at} or None,'
            f' "arguments": value{at}, "arguments_raw": text{at}}}'
        )
    source.add(f"if {' or '.join(checks)}:")
    source.add(rest, 2)
    source.add("else:")
    listed = f"[{', '.join(parts)}]"
    # Equal ids may be one tool call.
    source_text = f"distinct_calls({listed})" if len(ids) > 1 else listed
    source.add(f'found.append({{"role": "assistant", "parts": {source_text}}})', 2)


def choices(places: Sequence[Place], other: Callable[[Place, Attributes], Message]) -> Choices:
    """Return a function that reads the output messages of a call, one per choice.

    Args:
        places: The places of the messages.
        other: Reads any other message.
    """
    source = _Source(other=other)
    for place in places:
        rest = f"found.append(other({source.name(place)}, a))"
        if place.calls:
            _add_calls(source, place, "False", rest)
            _add_reason(source, place, '"tool_calls" if ended == "stop" else ended')
        elif place.content and not place.call_id:
            source.add(
                f"text = a[{source.name(place.content)}]\n"
                "if text[:1] in block_starts or text in no_text or written_call in text:"
            )
            source.add(rest, 2)
            source.add("else:")
            part = '{"type": "text", "content": text}'
            source.add(f'found.append({{"role": "assistant", "parts": [{part}]}})', 2)
            _add_reason(source, place, "ended")
        else:
            source.add(rest)
    source.add("return found")
    read: Choices = source.compiled()
    return read


def _add_reason(source: _Source, place: Place, reason: str) -> None:
    """Add the lines for the finish reason of the message that was just added by `else`."""
    if place.reason:
        source.add(f"ended = finish_reason(a[{source.name(place.reason)}])\nif ended:", 2)
        source.add(f'found[-1]["finish_reason"] = {reason}', 3)
