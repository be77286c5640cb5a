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

    They have the same parent, the same input and the same answer, name no different models, and
    only the client knows the response id. Each record is in one pair, the earliest with the
    earliest, so that calls that were repeated stay as many as the client made.
    """
    framework: dict[Hashable, list[LlmCall]] = defaultdict(list)
    client: dict[Hashable, list[LlmCall]] = defaultdict(list)
    for call in calls:
        if call.parent_span_id and call.past.saw:
            kept = framework if call.response_id is None else client
            kept[call.trace_id, call.parent_span_id, call.past.saw].append(call)
    for key in framework.keys() & client.keys():
        known = _by_answer(client[key])
        for answer, wholes in _by_answer(framework[key]).items():
            waiting = known.get(answer, [])
            for whole in wholes:
                own = next((one for one in waiting if _may_be_one_model(whole, one)), None)
                if own is not None:
                    waiting.remove(own)
                    yield whole, own


def _by_answer(calls: Iterable[LlmCall]) -> dict[bytes, list[LlmCall]]:
    """Return the calls that have an answer, by its parts in any order; each list is in order."""
    found: dict[bytes, list[LlmCall]] = defaultdict(list)
    for call in sorted(calls, key=order):
        if said := comparable_parts(outputs(call)):
            found[b"".join(sorted(map(dumps, said)))].append(call)
    return found


def _may_be_one_model(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records have a model in common, as far as both name any.

    Different models may give equal answers to the same question, such as "Yes".
    """
    named, known = _models(one), _models(other)
    return not named or not known or bool(named & known)


def _models(call: LlmCall) -> set[str]:
    """Return the names of a call's models, without the provider's before them."""
    names = filter(None, (call.request_model, call.response_model))
    return {name.rpartition("/")[2] for name in names}


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
