"""Recognise tools that report a failure in their result instead of raising an exception."""

import re
from collections.abc import Mapping
from typing import Any

from otel_lightning.collector.derive.text.json_text import parse

LOOKED_AT = 400
"""Number of characters at the beginning of a text that are searched for a failure."""
FAILURE = re.compile(
    r"\s*(<(tool_use_)?error>"
    r"|(an? )?([\w.]*\s?)?(error|exception|failure)( (executing|calling|running|invoking)\b[^:]*)?:"
    r"|error (executing|calling|running|invoking) "
    r"|an (unexpected )?error (has )?occurred\b"
    r"|traceback \(most recent call last\)"
    r"|(tool|command|request) (execution )?failed\b)",
    re.IGNORECASE,
)
"""Beginnings of texts that report a failure: "Error: …", "ValueError: …", "Tool … failed",
"An error occurred …"."""


WORDS = ("error", "exception", "fail", "traceback")
"""Each text that `FAILURE` matches has one of these words."""


def tells_failure(result: Any) -> bool | None:
    """Return whether a tool's result reports that the tool failed; None if there is no result.

    MCP's field `isError` decides if it is present. Otherwise these results report a failure: a text
    that begins like an error message, an object that holds only an error, and an object whose
    status is `error`, `failed` or `failure`.

    Args:
        result: The result: text (also of a JSON object), an object, or a list of content blocks.

    Example:
        >>> tells_failure({"content": [{"type": "text", "text": "no such file"}], "isError": True})
        True
        >>> tells_failure("Error: no such file"), tells_failure("No errors: all is well")
        (True, False)
    """
    if result is None:
        return None
    if isinstance(result, str):
        inside = parse(result) if result[:1] == "{" else None
        if not isinstance(inside, dict):
            return _begins_like_failure(result[:LOOKED_AT])
        result = inside
    if isinstance(result, list):
        return len(result) == 1 and bool(tells_failure(result[0]))
    return isinstance(result, dict) and _is_failure(result)


def _begins_like_failure(text: str) -> bool:
    """Match `FAILURE`. A search for its words first is cheaper, and most texts have none."""
    if text.isascii():
        lower = text.lower()
        for word in WORDS:
            if word in lower:
                return FAILURE.match(text) is not None
        return False
    return FAILURE.match(text) is not None


def _is_failure(result: Mapping[str, Any]) -> bool:
    for key in ("isError", "is_error"):
        if isinstance(result.get(key), bool):
            return bool(result[key])
    if str(result.get("status")).lower() in {"error", "failed", "failure"}:
        return True
    if result.get("error") and result.keys() <= {"error", "message", "code", "type", "details"}:
        return True
    text = result.get("text", result.get("content"))
    return isinstance(text, str | list) and bool(text) and bool(tells_failure(text))
