"""The text of a tool's result that came as text blocks, or as the `repr()` of them."""

import re
from typing import Any

from otel_lightning.collector.derive.text.json_text import QUOTED, dumps, parse, parse_literal

TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
"""The types of a block of text."""
# Matches `[TextContent(type='text', text='5')]` and `CallToolResult(meta=None, content=[…])` around
# it. The last line rules out a second block.
REPR = re.compile(
    rf"(?s)(\w+\()?(\w+=\w+,? )*(content=)?\[?Text(Block|Content)\(type='text', text={QUOTED}"
    r"((?!Block\(|Content\().)*"
)
"""The `repr()` of a tool's result that is one text block, from MCP or AgentScope."""
PYTHON = "[{'type': 'text', "
"""Prefix of the `repr()` of a list of text blocks, which OpenLIT writes for a content."""
FAILED = re.compile(r"\bisError=True\b|\bstate=<\w+\.ERROR\b")
"""Follows the text in the `repr()` of a result that tells of a failure."""

NO_REASON = "Tool call execution denied."
"""The result that Vercel's AI SDK sends to the model for a tool that was denied without a
reason."""


def plain(value: Any) -> Any:
    """Return the text of a list of text blocks or of a wrapped text; other values unchanged."""
    if isinstance(value, dict):
        return _wrapped_text(value)
    # Most results are plain text, so only one that names a block near its beginning is matched.
    if isinstance(value, str):
        if value.startswith(('[{"json": ', PYTHON)):
            blocks = parse_literal(value)
            return value if blocks is None else plain(blocks)
        return _text_of_repr(value) if "Text" in value[:80] else value
    if isinstance(value, list) and value and all(map(_is_text_block, value)):
        return "".join(str(block.get("text", block.get("content", ""))) for block in value)
    match value:
        # Bedrock's block of a result that is JSON, and Cohere's of any result.
        case [{"json": inner, **rest} | {"document": {"data": inner}, "type": "document", **rest}]:
            return value if rest else inner
    return value


def outcome(value: Any) -> Any:
    """Return the result of an execution like `plain`; as `{"error": text}` if it says it failed.

    Example:
        >>> outcome("CallToolResult(content=[TextContent(type='text', text='no')], isError=True)")
        {'error': 'no'}
    """
    text = plain(value)
    if isinstance(value, str) and text != value and (match := REPR.fullmatch(value)):
        return {"error": text} if FAILED.search(value, match.end("quoted")) else text
    return text


DENIALS = {
    "Error: Tool call invocation was rejected by user.",  # Microsoft's Agent Framework
    "The tool call was denied.",  # Pydantic AI
    "Tool execution was not approved.",  # OpenAI Agents SDK
}
"""The results that frameworks send to the model for a tool that a person did not approve."""
# LangChain's middleware for approvals adds the person's reason, or the id of the tool call.
_DENIAL = re.compile(r"User rejected the tool call for `[^`]+` with (?:reason: |id )")


def is_denial(value: Any) -> bool:
    """Return whether a tool's result says that the tool was not allowed to run.

    Vercel's AI SDK writes it so: version 6 with a type, version 7 with a flag. Other frameworks
    write what they tell the model, in words of their own.

    Example:
        >>> is_denial({"type": "execution-denied", "reason": "not now"})
        True
        >>> is_denial({"denied": True, "reason": "not now", "by": "the tool"})
        False
        >>> is_denial("User rejected the tool call for `book` with reason: Too dear.")
        True
    """
    if type(value) is str:
        return value in DENIALS or _DENIAL.match(value) is not None
    match value:
        case {"type": "execution-denied", **rest} | {"denied": True, **rest}:
            return not rest.keys() - {"reason"}
    return False


def _wrapped_text(block: dict[str, Any]) -> Any:
    match block:
        # Vercel's AI SDK sends the JSON of such a value, so a text has its quotes.
        case {"type": "json", "value": str(text), **rest} if not rest:
            return dumps(text).decode()
    if is_denial(block):  # the model gets the reason, without what the telemetry writes around it
        why = block.get("reason")
        return why if isinstance(why, str) else NO_REASON
    for key in ("value", "text"):
        if block.keys() == {"type", key}:
            return block[key]
    return block


def _text_of_repr(text: str) -> str:
    """Return the text in the `repr()` of one or several text blocks; other texts unchanged."""
    written = parse(text) if text.startswith('["') else [text]
    matches = [REPR.fullmatch(str(one)) for one in written or ()]
    texts = [str(parse_literal(one["quoted"])) for one in matches if one]
    return "".join(texts) if texts and len(texts) == len(matches) else text


def _is_text_block(block: Any) -> bool:
    return isinstance(block, dict) and (set(block) == {"text"} or block.get("type") in TEXTS)
