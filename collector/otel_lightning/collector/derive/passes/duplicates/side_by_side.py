"""Records of one model call next to each other: of a framework, and of the client that it calls.

LlamaIndex's instrumentation ends the span of a streamed call before the client sends the request,
so the client's span is not below it, and their times do not overlap. Without a span around both,
each is a trace of its own; both have the key of their history, so they are derived together.

Google ADK's span of a streamed call ends likewise, and has no messages unless it was told to write
them. Then the token counts tell which record of the client is of the same call.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.messages.packing import outputs
from otel_lightning.collector.derive.passes.duplicates.equal_answers import comparable_parts
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.text.json_text import dumps

WITHIN_NS = 10_000_000_000
"""Longest time (10 s) between the starts of two records of one call that have no parent."""


def pairs(calls: Collection[LlmCall]) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (framework's record, client's record) of one call.

    They have the same parent, the same input and the same answer, name no different models, and
    only the client knows the response id. Those without a parent have the same service, and the
    client's record begins within `WITHIN_NS` after that of the framework. Each record is in one
    pair, the earliest with the earliest, so that calls that were repeated stay as many as the
    client made.
    """
    of_framework = [call for call in calls if call.response_id is None]
    if not of_framework or len(of_framework) == len(calls):  # as in most traces
        return
    yield from _without_content(of_framework, calls)
    framework = _by_input(of_framework)
    client = _by_input(call for call in calls if call.response_id is not None)
    for key in framework.keys() & client.keys():
        known = _by_answer(client[key])
        for answer, wholes in _by_answer(framework[key]).items():
            waiting: dict[frozenset[str], deque[LlmCall]] = defaultdict(deque)
            for own in known.get(answer, ()):
                waiting[_models(own)].append(own)
            for whole in wholes:
                named = _models(whole)
                if whole.parent_span_id is None:
                    _drop_earlier(waiting.values(), whole)
                fitting = [
                    own
                    for models, own in waiting.items()
                    if own and _share_a_model(named, models) and _is_near(whole, own[0])
                ]
                if fitting:
                    yield whole, min(fitting, key=lambda own: time_order.of_call(own[0])).popleft()


def _without_content(
    of_framework: Iterable[LlmCall], calls: Iterable[LlmCall]
) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (framework's record without messages, client's record of the same counts) of one call.

    They have the same parent and name the same model, and another instrumentation wrote the
    client's record, which begins later.
    """
    clients = (call for call in calls if call.response_id is not None and call.content != "absent")
    waiting: dict[Hashable, deque[LlmCall]] = defaultdict(deque)
    for call in sorted(clients, key=time_order.of_call):
        waiting[_counted(call)].append(call)
    counted = filter(_has_counts_alone, of_framework)
    for whole in sorted(counted, key=time_order.of_call):
        same = waiting.get(_counted(whole), deque())
        while same and (same[0].start_ns or 0) < (whole.start_ns or 0):
            same.popleft()
        if same and same[0].scope_name != whole.scope_name:
            yield whole, same.popleft()


def _counted(call: LlmCall) -> Hashable:
    place = call.trace_id, call.parent_span_id
    return *place, call.request_model, call.input_tokens, call.output_tokens


def _has_counts_alone(call: LlmCall) -> bool:
    """Return whether a record has both token counts and no messages, and a parent."""
    is_counted = None not in (call.parent_span_id, call.input_tokens, call.output_tokens)
    return is_counted and call.content == "absent" and call.error_type is None


def _by_input(calls: Iterable[LlmCall]) -> dict[Hashable, list[LlmCall]]:
    """Return the calls by their input and parent, or service if they have no parent."""
    by_input: dict[Hashable, list[LlmCall]] = defaultdict(list)
    for call in calls:
        if call.history.input_hash:
            above = call.parent_span_id
            place = (call.trace_id, above) if above else (call.service_name, None)
            by_input[*place, call.history.input_hash].append(call)
    return by_input


def _drop_earlier(waiting: Iterable[deque[LlmCall]], whole: LlmCall) -> None:
    """Drop the client's records that began before the framework's: no later one fits them."""
    for some in waiting:
        while some and some[0].latest_start_ns < (whole.start_ns or 0):
            some.popleft()


def _is_near(whole: LlmCall, own: LlmCall) -> bool:
    """Return whether two records began at about one time, if no span around both tells more."""
    return whole.parent_span_id is not None or (
        own.latest_start_ns - (whole.start_ns or 0) <= WITHIN_NS
    )


def _by_answer(calls: Iterable[LlmCall]) -> dict[bytes, list[LlmCall]]:
    """Return the calls that have an answer, by its parts in any order; each list is in order."""
    by_answer: dict[bytes, list[LlmCall]] = defaultdict(list)
    for call in sorted(calls, key=time_order.of_call):
        if parts := comparable_parts(outputs(call)):
            by_answer[b"".join(sorted(map(dumps, parts)))].append(call)
    return by_answer


def _models(call: LlmCall) -> frozenset[str]:
    """Return the names of a call's models, without the provider's before them."""
    names = filter(None, (call.request_model, call.response_model))
    return frozenset(name.rpartition("/")[2] for name in names)


def _share_a_model(named: frozenset[str], known: frozenset[str]) -> bool:
    """Return whether two records have a model in common, as far as both name any.

    Different models may give equal answers to the same question, such as "Yes".
    """
    return not named or not known or bool(named & known)
