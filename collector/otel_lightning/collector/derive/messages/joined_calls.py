"""Separate parallel tool calls that an instrumentation joined into one.

OpenInference for JavaScript appends every delta of a stream to the first tool call: ids, names and
arguments of all calls follow each other, as in `call_1call_2`, `sunrain`, `{"a": 1}{"a": 2}`.
Langfuse for JavaScript appends the arguments likewise, and keeps one name and no id. LangSmith for
JavaScript appends names and arguments, and keeps the first id.
"""

from collections.abc import Collection, Iterable
from json import JSONDecodeError, JSONDecoder
from typing import Any

from otel_lightning.collector.derive.text import json_text

JOINED = "}{"
"""Occurs in the arguments of joined tool calls."""
PREFIX = 4
"""Number of characters that begin all ids of one provider, as in `call_…`."""
_decoder = JSONDecoder()


def separate(call: dict[str, Any], offered: Collection[str]) -> list[dict[str, Any]]:
    """Return the tool calls that one entry joins, or the entry itself if it is a single call.

    Args:
        call: `id`, `name` and `arguments`, the last as text.
        offered: Names of the tools that the request offers.

    Returns:
        One entry for each JSON object in the arguments. An id or a name that cannot be separated is
        None in all of them.

    Example:
        >>> both = {"id": "id-1id-2", "name": "ab", "arguments": '{"x":1}{"x":2}'}
        >>> [(one["id"], one["name"]) for one in separate(both, ["a", "b"])]
        [('id-1', 'a'), ('id-2', 'b')]
    """
    arguments = call.get("arguments")
    if not isinstance(arguments, str) or JOINED not in arguments:
        return [call]
    parts = _objects(arguments)
    if not parts:
        return [call]
    ids = _equal_parts(call.get("id"), len(parts))
    names = _names(str(call.get("name")), len(parts), offered) or [None] * len(parts)
    return [
        {"id": one, "name": name, "arguments": part}
        for one, name, part in zip(ids, names, parts, strict=True)
    ]


def separated(message: Any, offered: Iterable[Any]) -> Any:
    """Return an answer with its tool calls apart; any other value unchanged.

    Args:
        message: An assistant's message with `tool_calls` in OpenAI's form.
        offered: The tools that the request offers.
    """
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return message
    names = [str(tool.get("name")) for tool in offered if isinstance(tool, dict)]
    flat = [{"id": call.get("id"), **json_text.object_under(call, "function")} for call in calls]
    separate_calls = [one for call in flat for one in separate(call, names)]
    return (
        message if len(separate_calls) == len(calls) else {**message, "tool_calls": separate_calls}
    )


def _objects(text: str) -> list[str]:
    """Return the JSON objects that follow each other in a text; [] if it holds anything else."""
    objects, at = [], 0
    while at < len(text):
        try:
            value, end = _decoder.raw_decode(text, at)
        except JSONDecodeError:
            return []
        if not isinstance(value, dict):
            return []
        objects.append(text[at:end])
        at = end
    return objects


def _equal_parts(joined: object, count: int) -> list[str | None]:
    """Return an id's parts of equal length, which begin alike; None for each if there are none."""
    if isinstance(joined, str) and len(joined) % count == 0:
        length = len(joined) // count
        parts = [joined[at : at + length] for at in range(0, len(joined), length)]
        # Ids of one provider have one length and begin alike, so equal parts of any other text are
        # no ids.
        if length > 1 and len({part[: min(PREFIX, length - 1)] for part in parts}) == 1:
            return list(parts)
    return [None] * count


def _names(joined: str, count: int, offered: Collection[str]) -> list[str | None]:
    """Return `count` offered names that follow each other in a text; [] if there are none."""
    if count == 0:
        return []
    # The longest first, since one name may begin with another: `get` and `get_all`.
    for name in sorted(offered, key=len, reverse=True):
        if not joined.startswith(name):
            continue
        rest = joined.removeprefix(name)
        if count == 1 and not rest:
            return [name]
        if count > 1 and (more := _names(rest, count - 1, offered)):
            return [name, *more]
    return []
