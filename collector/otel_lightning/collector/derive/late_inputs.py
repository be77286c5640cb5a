"""Inputs that an exporter wrote late: with the call's own answer, and with what came after it.

LangSmith for JavaScript writes a list of messages when it sends the span. An agent that appends to
this list has gone on by then.
"""

from collections.abc import Iterable, Iterator

from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.text.packing import outputs, unpack


def cut(calls: Iterable[LlmCall]) -> Iterator[LlmCall]:
    """End inputs before the call's own answer, unless an earlier call answered in the same words.

    Args:
        calls: Model calls; changed in place. Only those of one trace are compared.

    Yields:
        The calls that were changed.
    """
    known = list(calls)
    for call in [one for one in known if one.answered_at is not None]:
        answer, since = _answer(call), call.start_ns or 0
        earlier = (one for one in known if one.trace_id == call.trace_id and one is not call)
        if not any((one.start_ns or 0) < since and _answer(one) == answer for one in earlier):
            call.input_messages = (unpack(call).input_messages or [])[: call.answered_at]
            call.answered_at = None
            yield call


def _answer(call: LlmCall) -> object:
    answered = outputs(call)
    return answered[0]["parts"] if answered else None
