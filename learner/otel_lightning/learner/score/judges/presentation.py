"""A rollout as a text for a judge, in a bounded number of characters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from otel_lightning.learner.score.judges.conversation import Part, Turn

PART_CHARACTERS = 6_000
"""A single text or tool result longer than this is cut in its middle."""


def present(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]], limit: int) -> str:
    """Write a conversation for a judge.

    Args:
        turns: The conversation.
        tools: Name, description and parameters of each tool that the agent had.
        limit: About how many characters to write; what is left out is marked.
    """
    part_limit = min(PART_CHARACTERS, limit // 4)
    listed = [clip("\n".join(["Tools of the agent:", *map(_tool, tools)]), limit // 4)]
    blocks = [_block(number, turn, part_limit) for number, turn in enumerate(turns, start=1)]
    return "\n\n".join([*(listed if tools else []), *shorten(blocks, limit)])


def clip(text: str, limit: int) -> str:
    """Cut the middle out of a long text and say so.

    Example:
        >>> clip("abcdefghij", 6)
        'abcd[… 4 characters left out …]ij'
    """
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}[… {len(text) - limit} characters left out …]{text[-tail:]}"


def shorten(blocks: Sequence[str], limit: int) -> list[str]:
    """Leave messages out of the middle: a third of the room is for the beginning.

    Example:
        >>> shorten(["task", "a" * 50, "b" * 50, "answer"], 30)
        ['task', '[… 2 messages left out …]', 'answer']
    """
    if sum(map(len, blocks)) <= limit:
        return list(blocks)
    head = _fitting(blocks, limit // 3)
    tail = max(_fitting(blocks[::-1], limit - limit // 3), 1)
    left_out = len(blocks) - head - tail
    if left_out <= 0:
        return list(blocks)
    return [*blocks[:head], f"[… {left_out} messages left out …]", *blocks[len(blocks) - tail :]]


def _fitting(blocks: Sequence[str], room: int) -> int:
    for number, block in enumerate(blocks):
        room -= len(block)
        if room < 0:
            return number
    return len(blocks)


def _block(number: int, turn: Turn, limit: int) -> str:
    agent = f" ({turn.agent})" if turn.agent else ""
    return "\n".join([f"[{number}] {turn.role}{agent}:", *(_part(p, limit) for p in turn.parts)])


def _part(part: Part, limit: int) -> str:
    kind = part.get("type")
    if kind == "text":
        return clip(as_text(part.get("content")), limit)
    if kind == "tool_call":
        return clip(f"calls {part.get('name')}({as_text(part.get('arguments'))})", limit)
    if kind == "tool_call_response":
        name = f" of {part['name']}" if part.get("name") else ""
        return clip(f"result{name}: {as_text(part.get('response'))}", limit)
    return f"[{kind}, not shown]"


def _tool(tool: Mapping[str, Any]) -> str:
    parameters = tool.get("parameters")
    names = (parameters.get("properties") or ()) if isinstance(parameters, Mapping) else ()
    return f"- {tool.get('name')}({', '.join(names)}): {tool.get('description') or ''}"


def as_text(value: Any) -> str:
    """Write a value of a message: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
