"""Histories that continue one that was read before: only what is new is parsed."""

from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.messages import SHORT, conversation
from otel_lightning.collector.derive.messages.one_message import only_calls
from otel_lightning.collector.derive.rows import Message
from otel_lightning.collector.derive.text.json_text import parse


def continued(text: str | None, memory: MessageMemory) -> list[Message] | None:
    """Return the canonical messages of a text that continues a remembered text (see `keep`).

    Args:
        text: The JSON array of a history.
        memory: The texts read before.

    Returns:
        The messages, in a new list; None if the text continues no remembered text.
    """
    if text is None or text[-1:] != "]" or (remembered := memory.resume(text)) is None:
        return None
    before, rest = remembered
    values = parse(rest)
    if not isinstance(values, list):
        return None
    turns = before + conversation(values, memory)
    if len(turns) > SHORT:
        # A history of up to `SHORT` messages was kept without sharing its messages.
        known = 0 if len(before) <= SHORT else len(before)
        turns[known:] = map(memory.one_copy, turns[known:])
    keep(text, turns, memory)
    return [*turns]


def keep(text: str, turns: list[Message], memory: MessageMemory) -> None:
    """Remember the messages of a JSON array, for the texts that continue it.

    Nothing is remembered if the last turn asks for tools, because the next text may add further
    calls to that turn.
    """
    if len(turns) > 1 and text[-1] == "]" and not only_calls(turns[-1]):
        memory.keep_text(text, turns)
