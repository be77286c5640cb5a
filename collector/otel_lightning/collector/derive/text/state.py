"""What a model saw when it was called, as one hash: calls in the same state have the same one."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from otel_lightning.collector.derive.text.json_text import dumps


def state_hash(
    prompt_token_ids: Sequence[int] | None, saw: str | None, tools: list[Any] | None
) -> str | None:
    """Hash what a call's model saw: its prompt's tokens, else its messages and tools.

    Args:
        prompt_token_ids: The tokens of the prompt, where the server gave them.
        saw: The hash of the input messages, if there are any.
        tools: Tool definitions in canonical form.

    Returns:
        Hex text; None where nothing is known of what it saw.

    Example:
        >>> state_hash([3, 14, 15], None, None) == sha256(b"3 14 15").hexdigest()
        True
    """
    if prompt_token_ids:
        return sha256(" ".join(map(str, prompt_token_ids)).encode()).hexdigest()
    if not tools:
        return saw
    return sha256((saw or "").encode() + _written(tools)).hexdigest()


def _written(tools: list[Any]) -> bytes:
    """Return tools as JSON. The calls of an agent share one list, so the last one is remembered."""
    global _last  # noqa: PLW0603 - it belongs to the cache
    known = _last
    if tools is not known[0]:
        known = _last = tools, dumps(tools, sort_keys=True)
    return known[1]


_last: tuple[list[Any] | None, bytes] = None, b""
"""The tools that were written last, and their JSON. Tools are never changed in place."""
