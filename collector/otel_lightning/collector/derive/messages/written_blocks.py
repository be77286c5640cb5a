"""Blocks of an answer that a package wrote into a text, in JSON or as Python spells them."""

from otel_lightning.collector.derive.messages.content_blocks import content_parts
from otel_lightning.collector.derive.messages.tool_parts import Part
from otel_lightning.collector.derive.text import repr_objects
from otel_lightning.collector.derive.text.json_text import parse, parse_literal

CALLED = "function_call"
"""The type of an item of the Responses API that calls a tool."""
TYPES = (CALLED, '"id": "rs_', '"type":"function"')
"""What the items of the Responses API have that call a tool, and that hold reasoning; and the tool
calls of Chat Completions, as Langtrace writes them for JavaScript."""
REPR_STARTS = ("ThinkingBlock(", "TextBlock(", "ToolUseBlock(")
"""Prefixes of the `repr()` of a block; see `written_out`."""
_BLOCK_KEYS = {"thinking": "thinking", "text": "text", "tool_use": "input"}
"""The types of Anthropic's blocks that are read from a text, each with a key that it has."""


def written_out(part: Part) -> list[Part]:
    """Return the parts of a block that a package wrote into a text, not knowing its type.

    It is one or more items of the Responses API, or one of Anthropic's blocks, in JSON or as Python
    spells them.
    """
    text = part.get("content")
    if part["type"] != "text" or not isinstance(text, str):
        return [part]
    if text[:1] in "[{" and any(type_ in text for type_ in TYPES):
        items = parse_literal(text)
        listed = items if isinstance(items, list) else [items]
        if all(isinstance(item, dict) and item.get("type") for item in listed):
            return content_parts(listed)
    block = repr_objects.parse(text) if text.startswith(REPR_STARTS) else None
    if text.startswith('{"reasoningContent": {'):  # of Bedrock's, in Traceloop
        return content_parts([parse(text) or {"type": "text", "text": text}])
    if text[:1] == "{" and '"type": "t' in text:  # a thought or the use of a tool
        block = parse(text)
    if isinstance(block, dict) and _BLOCK_KEYS.get(str(block.get("type"))) in block:
        return content_parts([block])
    return [part]
