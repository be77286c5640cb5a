"""Write the record of a rollout for a judge, with a limited number of characters.

The record is one JSON object per line: first the tools, then the messages. All text of an agent, a
user or a tool is inside a JSON string, so that it cannot imitate another message, a tool call, a
result or a cut.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from otel_lightning.collector.show.conversation import arguments_of, text_or_json
from otel_lightning.learner.score.judges.conversation import Part, Turn

PART_CHARACTERS = 6_000
"""Largest number of characters of one text or tool result; longer ones lose their middle."""
LINE_BREAKS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})
"""Line breaks that JSON does not escape."""


def present(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]], limit: int) -> str:
    """Write a conversation for a judge.

    Args:
        turns: The conversation.
        tools: Name, description and parameters of each tool that the agent had.
        limit: Largest number of characters, approximately. Cuts are marked in the record.

    Returns:
        One JSON object per line.
    """
    part_limit = min(PART_CHARACTERS, limit // 4)
    # At most a quarter for tools, and a quarter for a single message, so that none crowds out the
    # rest.
    listed = shorten([_line(_tool(tool, part_limit)) for tool in tools], limit // 4, "tools")
    messages = [_line(_message(n, turn, part_limit)) for n, turn in enumerate(turns, start=1)]
    return "\n".join([*listed, *shorten(messages, limit, "messages")])


def cut(text: str, limit: int) -> str | list[Any]:
    """Cut the middle out of a long text; return its head, the size of the cut, and its tail.

    Example:
        >>> cut("abcdefghij", 6)
        ['abcd', {'characters_left_out': 4}, 'ij']
        >>> cut("abcdef", 6)
        'abcdef'
    """
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return [text[:head], {"characters_left_out": len(text) - limit}, text[-tail:]]


def clip(text: str, limit: int) -> str:
    """Cut the middle out of a long text, and mark the cut in the text.

    Example:
        >>> clip("abcdefghij", 6)
        'abcd[… 4 characters left out …]ij'
    """
    parts = cut(text, limit)
    if isinstance(parts, str):
        return parts
    head, gap, tail = parts
    return f"{head}[… {gap['characters_left_out']} characters left out …]{tail}"


def shorten(lines: Sequence[str], limit: int, what: str) -> list[str]:
    """Leave out lines in the middle; the beginning gets a third of the characters.

    Example:
        >>> shorten(["task", "a" * 50, "b" * 50, "answer"], 30, "messages")
        ['task', '{"messages_left_out": 2}', 'answer']
    """
    if sum(map(len, lines)) <= limit:
        return list(lines)
    head = _fitting(lines, limit // 3)
    # At least the last message, which is usually the result.
    tail = max(_fitting(lines[::-1], limit - limit // 3), 1)
    left_out = len(lines) - head - tail
    if left_out <= 0:
        return list(lines)
    return [*lines[:head], _line({f"{what}_left_out": left_out}), *lines[len(lines) - tail :]]


def _fitting(lines: Sequence[str], room: int) -> int:
    for number, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return number
    return len(lines)


def _line(value: Mapping[str, Any]) -> str:
    # JSON escapes quotes and line feeds, so a text cannot begin a new line of the record.
    return json.dumps(value, ensure_ascii=False).translate(LINE_BREAKS)


def _message(number: int, turn: Turn, limit: int) -> dict[str, Any]:
    agent = {"agent": turn.agent} if turn.agent else {}
    parts = [_part(part, limit) for part in turn.parts]
    return {"message": number, "role": turn.role, **agent, "parts": parts}


def _part(part: Part, limit: int) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "text":
        return {"text": cut(text_or_json(part.get("content")), limit)}
    if kind == "tool_call":
        return {"calls": part.get("name"), "arguments": _value(arguments_of(part), limit)}
    if kind == "tool_call_response":
        name = {"of": part["name"]} if part.get("name") else {}
        return {"result": _value(part.get("response"), limit), **name}
    return {"not_shown": str(part.get("modality") or kind)}


def _tool(tool: Mapping[str, Any], limit: int) -> dict[str, Any]:
    parameters = tool.get("parameters")
    names = list(parameters.get("properties") or ()) if isinstance(parameters, Mapping) else []
    description = cut(text_or_json(tool.get("description") or ""), limit)
    return {"tool": tool.get("name"), "parameters": names, "description": description}


def _value(value: Any, limit: int) -> Any:
    """Return a JSON value unchanged, or its text with a cut if it is too long."""
    return value if len(text_or_json(value)) <= limit else cut(text_or_json(value), limit)
