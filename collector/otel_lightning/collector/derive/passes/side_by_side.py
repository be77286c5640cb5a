"""Records of one model call next to each other: of a framework, and of the client that it calls.

LlamaIndex's instrumentation ends the span of a streamed call before the client sends the request,
so the client's span is not below it, and their times do not overlap.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from otel_lightning.collector.derive.passes.rollouts import order
from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.text.json_text import dumps
from otel_lightning.collector.derive.text.packing import outputs


def pairs(calls: Iterable[LlmCall]) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (framework's record, client's record) of one call.

    They have the same parent, the same input and the same answer, and only the client knows the
    response id. Each record is in one pair, the earliest with the earliest, so that calls that were
    repeated stay as many as the client made.
    """
    framework: dict[Hashable, list[LlmCall]] = defaultdict(list)
    client: dict[Hashable, list[LlmCall]] = defaultdict(list)
    for call in calls:
        if call.parent_span_id and call.past.saw:
            kept = framework if call.response_id is None else client
            kept[call.trace_id, call.parent_span_id, call.past.saw].append(call)
    for key in framework.keys() & client.keys():
        waiting = sorted(client[key], key=order)
        for call in sorted(framework[key], key=order):
            own = next((one for one in waiting if _same_answer(call, one)), None)
            if own is not None:
                waiting.remove(own)
                yield call, own


def _same_answer(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records have the same answer, in any order, and both have one."""
    said, answered = (comparable_parts(outputs(call)) for call in (one, other))
    return bool(said) and sorted(said, key=dumps) == sorted(answered, key=dumps)


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
