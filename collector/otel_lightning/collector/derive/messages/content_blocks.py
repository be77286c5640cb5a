"""The parts of a message's content blocks, in the form of each provider.

OpenAI's, Anthropic's, Gemini's, Bedrock's and LangChain's blocks differ in the names of their keys.
`_PARTS` has the function that reads a block of each type.
"""

from collections.abc import Callable, Mapping
from typing import Any

from otel_lightning.collector.derive.messages import hosted_tools, media_parts
from otel_lightning.collector.derive.messages.text_blocks import PYTHON, TEXTS, plain
from otel_lightning.collector.derive.messages.tool_parts import Part, response_part, tool_call_part
from otel_lightning.collector.derive.text.json_text import parse, parse_literal

ELIDED = "<elided>"
"""The placeholder in Google ADK's logs for content that must not be recorded."""
LOST = "ToolCall"
"""The part that Splunk's package for LangChain writes in place of tool calls."""
BLOCKS = '[{"type":"'
"""Prefix of a text into which a package wrote all blocks of a message."""
WRITTEN = '{"type":"'
"""Prefix of a content that may be a block written as JSON."""
OWN_KEYS = 2
"""Number of keys of a part that has only a type and a content."""
_BODIES_OF_CALLS = ("function", "function_call", "functionCall", "toolRequest", "toolUse")
_CALL_BODIES = frozenset(_BODIES_OF_CALLS)


def text_part(content: object) -> Part | None:
    """Return a text part, or None if the text was not recorded."""
    left_out = content is None or content == ELIDED
    return None if left_out else {"type": "text", "content": str(content)}


def content_parts(body: Any) -> list[Part]:
    """Return the parts of a message's content: text, a list of blocks, or nothing."""
    if isinstance(body, list):
        parts = [part for block in body for part in _block_parts(block)]
        text = parts[0].get("content") if len(parts) == 1 else None
        if isinstance(text, str) and text.startswith((BLOCKS, PYTHON)):
            return content_parts(written) if (written := parse_literal(text)) else parts
        return parts
    part = text_part(body)
    return [] if part is None else [part]


def _block_parts(block: Any) -> list[Part]:
    """Return the parts of one content block: several only for a tool that the provider ran."""
    if not isinstance(block, dict):
        return [] if block == LOST else _as_list(text_part(block))
    kind = str(block.get("type") or _untyped(block))
    if (inside := _blocks_inside(block, kind)) is not None:
        return content_parts(inside)
    if (read := _PARTS.get(kind)) is not None:
        return _as_list(read(block))
    if kind in media_parts.KINDS:
        return [media_parts.media_part(kind, block)]
    if (item := hosted_tools.item_parts(block)) is not None:
        return item[1]
    return [hosted_tools.block_part(block) or {**block, "type": kind}]


def _separate(block: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the blocks that one block without a type holds; None if it is a single one.

    OpenInference for `google-genai` adds all pieces of a streamed answer to one block.
    """
    of_tools = [key for key in _OF_TOOLS if isinstance(block.get(key), dict)]
    rest = {key: value for key, value in block.items() if key not in of_tools}
    before = [rest] if any(rest.get(key) for key in _WORDS) else []
    blocks = [*before, *({key: block[key]} for key in of_tools)]
    return blocks if len(blocks) > 1 else None


def _blocks_inside(block: Mapping[str, Any], kind: str) -> list[Any] | None:
    """Return the blocks that a package put into one part; None if the part is no such part.

    Azure's client for agents writes all blocks of a content into a text, and Microsoft's
    distribution for JavaScript writes a block as JSON into a part of the block's type.
    """
    if not block.get("type") and (blocks := _separate(block)) is not None:
        return blocks
    content = block.get("content")
    if isinstance(content, list):
        return content if kind in TEXTS else None
    if not isinstance(content, str) or not content.startswith(WRITTEN) or len(block) > OWN_KEYS:
        return None
    inside = parse(content)
    return [inside] if isinstance(inside, dict) and inside.get("type") == kind else None


def _as_list(part: Part | None) -> list[Part]:
    return [] if part is None else [part]


def _untyped(block: Mapping[str, Any]) -> str:
    """Return the kind of a Gemini or Bedrock block: its only key whose value is set."""
    return next((key for key in _UNTYPED if block.get(key) not in (None, False)), "unknown")


def _read_text(block: Mapping[str, Any]) -> Part | None:
    return text_part(block.get("content", block.get("text")))


def read_reasoning(block: Mapping[str, Any]) -> Part | None:
    """Return the reasoning that a block or an item of a response holds; None if it has no text."""
    block = _inside(block, "reasoning")
    given = (block.get(key) for key in ("content", "thinking", "text", "summary", "reasoning"))
    content = next((value for value in given if value), None)
    blocks = parse(content) if isinstance(content, str) else content
    content = plain(blocks) if isinstance(blocks, list) else content
    return {"type": "reasoning", "content": content} if content else None


def _read_bedrock_reasoning(block: Mapping[str, Any]) -> Part | None:
    # Strands writes Bedrock's block inside a part of the conventions.
    inside = block.get("reasoningContent", block.get("content"))
    thought = inside.get("reasoningText") if isinstance(inside, dict) else None
    return read_reasoning(thought) if isinstance(thought, dict) else None


_CALL_IDS = ("call_id", "callId", "toolCallId")


def read_call(block: Mapping[str, Any]) -> Part:
    """Return the tool call in a block, or in an entry of a message's `tool_calls`."""
    function = block if _CALL_BODIES.isdisjoint(block) else _inside(block, *_BODIES_OF_CALLS)
    # A Responses item has its own id (fc_…) and the call id (call_…), which the response uses.
    call_id = next((block[key] for key in _CALL_IDS if block.get(key)), None)
    call_id = (
        call_id
        or block.get("id")
        or function.get("id")
        or function.get("ref")
        or function.get("toolUseId")
    )
    name = function.get("name") or block.get("toolName")
    for key in ("arguments", "input", "args"):
        if key in function:
            return tool_call_part(call_id, name, function[key])
    return tool_call_part(call_id, name, None)


def _read_function_call(block: Mapping[str, Any]) -> Part:
    """Return the tool call in an item of a response; OpenLIT spells the item in a `content`."""
    spelled = block.get("content")
    item = parse_literal(spelled) if isinstance(spelled, str) and "name" not in block else None
    return read_call(item if isinstance(item, dict) else block)


def _inside(block: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the object under the first of these keys, or the block itself if there is none."""
    return next((block[key] for key in keys if isinstance(block.get(key), dict)), block)


def read_response(block: Mapping[str, Any]) -> Part:
    """Return the response to a tool call that a block or an item of a request holds."""
    block = _inside(block, "function_response", "functionResponse", "toolResponse", "toolResult")
    keys = ("tool_use_id", *_CALL_IDS, "id", "ref", "toolUseId")
    call_id = next((block[key] for key in keys if block.get(key)), None)
    values = ("response", "result", "output", "content")
    return response_part(call_id, next((block[key] for key in values if key in block), None))


_PARTS: dict[str, Callable[[Mapping[str, Any]], Part | None]] = {
    **dict.fromkeys(TEXTS, _read_text),
    "refusal": lambda block: text_part(block.get("refusal", block.get("content"))),
    **dict.fromkeys(("reasoning", "thinking", "thought"), read_reasoning),
    "reasoningContent": _read_bedrock_reasoning,
    # The conventions, Anthropic and Vercel's AI SDK; then OpenAI; then Gemini, Genkit and Bedrock.
    **dict.fromkeys(("tool_call", "tool_use", "tool-call"), read_call),
    "function": read_call,
    "function_call": _read_function_call,
    **dict.fromkeys(("functionCall", "toolRequest", "toolUse"), read_call),
    **dict.fromkeys(("tool_call_response", "tool_result", "tool-result"), read_response),
    **dict.fromkeys(("function_response", "functionResponse"), read_response),
    **dict.fromkeys(("toolResponse", "toolResult", "toolresult"), read_response),  # early Rig's
    # The AI SDK's record of a person's approval of a tool; models do not get it.
    **dict.fromkeys(("tool-approval-request", "tool-approval-response"), lambda _: None),
    "input_json_delta": lambda _: None,  # a chunk of a stream, whose call holds the arguments
}
BLOCK_TYPES = frozenset(_PARTS)
"""The types of blocks that are read."""
_GEMINI = ("function_call", "functionCall", "function_response", "functionResponse")
_BY_KEY = (
    "thought",
    "text",
    "reasoning",
    "reasoningContent",
    "toolUse",
    "toolResult",
    "toolRequest",
    "toolResponse",
    "function",
)
_WORDS = ("text", "reasoning", "reasoningContent")
_OF_TOOLS = (*_GEMINI, "toolUse", "toolResult", "toolRequest", "toolResponse")
_UNTYPED = (*_BY_KEY, *_GEMINI, *media_parts.UNTYPED)
"""The keys by which blocks without a `type` are told apart. `thought` comes first, because Gemini's
thoughts have a `text` too."""
