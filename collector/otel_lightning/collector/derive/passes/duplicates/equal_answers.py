"""Compare the answers in two records of one model call."""

from collections.abc import Iterable
from typing import Any

from otel_lightning.collector.derive.messages.packing import outputs
from otel_lightning.collector.derive.rows import LlmCall, Message


def comparable_parts(outputs: Iterable[Message]) -> list[Any]:
    """Return what all records of one call have of its answer.

    Without the ids of tool calls, and without reasoning: layers write different ids (`fc_…`,
    `call_…`), and not every layer records reasoning.
    """
    keys = ("type", "content", "name", "arguments")
    return [
        {key: part.get(key) for key in keys}
        for message in outputs
        for part in message["parts"]
        if part["type"] != "reasoning"
    ]


def agree(one: LlmCall, other: LlmCall) -> bool:
    """Return whether two records have equal answers, or at least one has none."""
    parts, other_parts = comparable_parts(outputs(one)), comparable_parts(outputs(other))
    return not parts or not other_parts or parts == other_parts
