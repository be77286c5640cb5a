"""Convert messages to the tokens of a prompt, and the tokens of a completion to a message.

A tool call is written as Qwen and Hermes models write it: a JSON object between `<tool_call>` and
`</tool_call>`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # only its type: importing it takes seconds
    from transformers import PreTrainedTokenizerBase

_OPEN, _CLOSE = MARKS = ("<tool_call>", "</tool_call>")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model asked for; `arguments` is a JSON object as text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed completion: the text before its tool calls, and the calls."""

    content: str | None
    calls: tuple[ToolCall, ...] = ()


def prompt_ids(
    tokenizer: "PreTrainedTokenizerBase",
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
) -> list[int]:
    """Tokenize messages up to where the assistant speaks next."""
    ids: Any = tokenizer.apply_chat_template(
        [_for_template(message) for message in messages],
        tools=list[Any](tools) or None,
        add_generation_prompt=True,
        return_dict=False,
    )
    return list(ids)


def decode(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    """Turn tokens into text, without the tokenizer's special tokens.

    The two marks of a tool call stay, also where the tokenizer lists them as special tokens.
    """
    added = tokenizer.added_tokens_decoder
    shown = [i for i in ids if i not in added or not added[i].special or str(added[i]) in MARKS]
    return str(tokenizer.decode(shown, skip_special_tokens=False))


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the arguments of tool calls: templates of most models expect objects."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    return {**message, "tool_calls": [_with_parsed_arguments(call) for call in calls]}


def _with_parsed_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments: Any = json.loads(function["arguments"])
    except (TypeError, ValueError):
        return dict(call)
    return {**call, "function": {**function, "arguments": arguments}}


def parse_reply(text: str) -> Reply:
    """Read a completion; a malformed tool call leaves the whole completion plain text.

    Example:
        >>> parse_reply('<tool_call>{"name": "lookup", "arguments": {"order": "A11"}}</tool_call>')
        Reply(content=None, calls=(ToolCall(name='lookup', arguments='{"order": "A11"}'),))
        >>> parse_reply('<tool_call>{"name": "lookup", "argu')
        Reply(content='<tool_call>{"name": "lookup", "argu', calls=())
    """
    content, *blocks = text.split(_OPEN)
    calls = [_parse_call(block) for block in blocks]
    complete = tuple(call for call in calls if call)
    # If one call is malformed, the agent must see the whole text: half of the calls would mislead
    # it.
    if not complete or len(complete) < len(calls):
        return Reply(text)
    return Reply(content or None, complete)


def _parse_call(block: str) -> ToolCall | None:
    body, closed, after_call = block.partition(_CLOSE)
    # Text behind a call is no form that the template writes.
    if not closed or after_call.strip():
        return None
    try:
        call: Any = json.loads(body)
    except ValueError:
        return None
    match call:
        case {"name": str(name), "arguments": Mapping() as arguments}:
            return ToolCall(name, json.dumps(arguments, ensure_ascii=False))
    return None
