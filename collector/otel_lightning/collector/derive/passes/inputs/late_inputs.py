"""Inputs that an exporter wrote late: with the call's own answer, and with what came after it.

LangSmith for JavaScript writes a list of messages when it sends the span. An agent that appends to
this list has gone on by then.
"""

from collections.abc import Collection, Iterator

from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.rows import LlmCall, Message


def cut(calls: Collection[LlmCall]) -> Iterator[LlmCall]:
    """End inputs before the call's own answer, where a later input has this answer only once.

    If the answer repeated an earlier one, a history that goes on would have both.

    Args:
        calls: Model calls; changed in place. Only those of one trace are compared.

    Yields:
        The calls that were changed.
    """
    for call in [one for one in calls if one.answered_at is not None]:
        own, since = unpack(call).input_messages or [], call.start_ns or 0
        later = (one for one in calls if one.trace_id == call.trace_id)
        histories = (
            unpack(one).input_messages or [] for one in later if (one.start_ns or 0) > since
        )
        if any(_has_once(history, own, call.answered_at or 0) for history in histories):
            call.input_messages, call.answered_at = own[: call.answered_at], None
            yield call


def _has_once(history: list[Message], own: list[Message], place: int) -> bool:
    """Return whether a history goes on from the message at a place of `own`, and has it once."""
    same = [message for message in history if message["parts"] == own[place]["parts"]]
    return history[: place + 1] == own[: place + 1] and len(same) == 1
