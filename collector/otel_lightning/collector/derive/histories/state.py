"""One hash of what a model saw when it was called: calls in the same state have the same hash."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from otel_lightning.collector.derive.text.json_text import dumps


def state_hash(
    prompt_token_ids: Sequence[int] | None, input_hash: str | None, tools: bytes | None
) -> str | None:
    """Hash the input of a call: the prompt's token ids, or without them its messages and tools.

    Args:
        prompt_token_ids: The tokens of the prompt, where the server gave them.
        input_hash: The hash of the input messages, if there are any.
        tools: Tool definitions as canonical JSON (`ToolTexts`).

    Returns:
        Hex text; None where nothing is known of the input.

    Example:
        >>> state_hash([3, 14, 15], None, None) == sha256(b"3 14 15").hexdigest()
        True
    """
    if prompt_token_ids:
        return sha256(" ".join(map(str, prompt_token_ids)).encode()).hexdigest()
    if not tools:
        return input_hash
    return sha256((input_hash or "").encode() + tools).hexdigest()


class ToolTexts:
    """Tool definitions as canonical JSON.

    The calls of an agent share one list, so the last list and its text are kept.
    """

    def __init__(self) -> None:
        """Begin without a list."""
        self._last: tuple[list[Any] | None, bytes | None] = None, None

    def of(self, tools: list[Any] | None) -> bytes | None:
        """Return the text of a list of tools, which nobody changes in place; None for no tools."""
        if tools is not self._last[0]:
            self._last = tools, dumps(tools, sort_keys=True) if tools else None
        return self._last[1]
