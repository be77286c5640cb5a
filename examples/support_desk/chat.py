"""How messages become the model's tokens, and its tokens become a message again.

The roles are single tokens, so a message always begins on a token of its own: the ids that were
sampled are the ids that a later prompt holds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # only its type: importing it takes seconds
    from transformers import PreTrainedTokenizerBase

END = "<|end|>"
PAD = "<|pad|>"
ROLES = ("<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

CHAT_TEMPLATE = """\
{%- if tools %}<|tools|>
{%- for tool in tools %}{{ tool.function.name }} {% endfor %}<|end|>
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}<|assistant|>
{%- generation %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", \
"arguments": {% if call.function.arguments is string %}{{ call.function.arguments }}\
{% else %}{{ call.function.arguments | tojson }}{% endif %}}</tool_call>
{%- endfor %}<|end|>{% endgeneration %}
{%- else %}<|{{ message.role }}|>{{ message.content }}<|end|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model asked for; `arguments` is a JSON object as text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a completion says: text before its tool calls, and the calls."""

    content: str | None
    calls: tuple[ToolCall, ...] = ()


def prompt_ids(
    tokenizer: "PreTrainedTokenizerBase",
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
) -> list[int]:
    """Tokenize messages up to where the assistant speaks next."""
    ids: Any = tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        tools=list[Any](tools),
        add_generation_prompt=True,
        return_dict=False,
    )
    return list(ids)


def decode(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int], *, show_special: bool = False
) -> str:
    """Turn tokens into text."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=not show_special))


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
    if not complete or len(complete) < len(calls):
        return Reply(text)
    return Reply(content or None, complete)


def _parse_call(block: str) -> ToolCall | None:
    body, closed, rest = block.partition(_CLOSE)
    if not closed or rest.strip():
        return None
    try:
        call: Any = json.loads(body)
    except ValueError:
        return None
    match call:
        case {"name": str(name), "arguments": Mapping() as arguments}:
            return ToolCall(name, json.dumps(arguments, ensure_ascii=False))
    return None
