"""Records of one model call that share a key: a response id, a failure, or input and answer."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.messages.packing import has_output, outputs
from otel_lightning.collector.derive.passes.duplicates.equal_answers import agree, comparable_parts
from otel_lightning.collector.derive.passes.duplicates.merged_records import (
    are_polls,
    is_instant,
    tool_call_ids,
)
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_rows import is_logfires
from otel_lightning.collector.derive.span_tree import Nodes, Place
from otel_lightning.collector.derive.text.json_text import dumps

SAME_TIME_NS = 10_000_000_000
"""Length (10 s) of the time interval in which records of one failed call without a parent must
start to be merged."""


def pairs(records: Sequence[LlmCall], nodes: Nodes) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield two records of one call each: those with an equal key that belong together."""
    yield from _same_response(records)
    yield from _late_answers(records, nodes)
    yield from failures(records, nodes)
    yield from _without_ids(records)


def _with_equal_key(
    records: Iterable[LlmCall], key_of: Callable[[LlmCall], Hashable]
) -> Iterator[list[LlmCall]]:
    """Yield the records of each key that several records have."""
    known = list(records)
    keys = list(map(key_of, known))
    repeated = set[Hashable]()
    if len(set(keys)) < len(keys):  # as in few traces
        repeated.update(key for key, count in Counter(keys).items() if count > 1 and key)
    by_key: dict[Hashable, list[LlmCall]] = defaultdict(list)
    for key, record in zip(keys, known, strict=True) if repeated else ():
        if key in repeated:
            by_key[key].append(record)
    yield from by_key.values()


def _same_response(records: Iterable[LlmCall]) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield the records that share a response id, and also a trace, or time and output.

    The id alone is not enough, because some servers give every response the same id. It is enough
    for the request of a response in the background and for the requests that ask for its answer.
    """
    for calls in _with_equal_key(records, attrgetter("response_id")):
        if are_polls(calls):
            yield from ((calls[0], call) for call in calls[1:])
            continue
        first_of_trace: dict[str, LlmCall] = {}
        latest: LlmCall | None = None
        for call in sorted(calls, key=time_order.of_call):
            same = first_of_trace.setdefault(call.trace_id, call)
            if same is not call:
                yield same, call
            # Calls come in the order of their starts. So a call overlaps an earlier one if it
            # overlaps the one that ends last.
            if latest is not None and _may_overlap(latest, call) and agree(latest, call):
                yield latest, call
            if latest is None or (call.end_ns or 0) > (latest.end_ns or 0):
                latest = call


def _late_answers(records: Sequence[LlmCall], nodes: Nodes) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield the calls whose streamed answer was recorded as a separate span, and that span.

    It belongs to the latest earlier call with the same input and parent that has no answer. The
    stream may have failed, which only the record of its answer tells then.
    """
    if not any(map(is_instant, records)):
        return
    waiting: dict[tuple[Any, ...], list[LlmCall]] = defaultdict(list)
    for call in sorted(records, key=time_order.of_call):
        key = _request_key(call, nodes)
        # Logfire writes the answer of a stream as a log: a span that starts and ends at one time.
        # It does so even of a stream that it got nothing of.
        if is_instant(call) and (call.error_type or has_output(call) or is_logfires(call)):
            unanswered = waiting.get(key) or waiting.get(_without_error(key))
            if unanswered:
                yield unanswered.pop(), call
        elif not has_output(call):
            waiting[key].append(call)


def _request_key(call: LlmCall, nodes: Nodes) -> tuple[Any, ...]:
    """Return the key of a request, which the record of its answer shares; the error is its end."""
    # A packed input is the same JSON text that `dumps` returns.
    sent = call.packed[0] if call.packed else dumps(call.input_messages)
    return (*_shared_key(call, nodes), sent, call.error_type)


def _without_error(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*key[:-1], None)


def _shared_key(call: LlmCall, nodes: Nodes) -> tuple[Any, ...]:
    """Return the key that a call's other records share: service, model and parent.

    The parent is None for a call without one, whose other records may be in separate traces.
    """
    return call.service_name, call.request_model, None if _is_root(call, nodes) else _above(call)


def _above(call: LlmCall) -> Place:
    return call.trace_id, call.parent_span_id or ""


def _is_root(call: LlmCall, nodes: Nodes) -> bool:
    """Return whether the span of a call has no parent, or one that was not recorded.

    LangSmith sends its spans under other ids than those that its client's instrumentation saw.
    """
    return _above(call) not in nodes


def trace_keys(call: LlmCall, nodes: Nodes) -> Iterator[str]:
    """Yield the keys by which separate traces with records of one call find each other.

    Args:
        call: A call as recorded by one span.
        nodes: All spans.
    """
    if not _is_root(call, nodes):
        return
    failure_key = failure(call, nodes)
    if failure_key:
        yield f"failure:{failure_key}"
    if failure_key and not is_instant(call):  # it is not the end of a stream that failed
        return
    input_hash = call.history.input_hash
    if input_hash and call.operation != "embeddings" and _is_half(call):
        yield f"answer:{input_hash}"


def _is_half(call: LlmCall) -> bool:
    """Return whether this span may hold only the question or only the answer of a call."""
    return is_instant(call) or not has_output(call)


def failures(records: Iterable[LlmCall], nodes: Nodes) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield the record around a failed call, and one inside it by another instrumentation."""
    failed = [record for record in records if record.error_type]
    for calls in _with_equal_key(failed, lambda call: failure(call, nodes)):
        ended = sorted(calls, key=lambda call: (call.end_ns or 0, time_order.of_call(call)))
        outer = [call for call in ended if call.content != "absent"]
        # An outer record takes one inner record at most, so parallel calls that failed stay apart.
        for call in (one for one in ended if one.content == "absent"):
            around = next((one for one in outer if _contains(one, call)), None)
            if around is not None:
                outer.remove(around)
                yield around, call
        yield from _of_several_scopes(one for one in ended if one.content != "absent")


def _without_ids(records: Iterable[LlmCall]) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield the records of one call by several listeners to a framework, such as LangChain.

    They have one parent or, in traces of their own, one service; the same input and answer,
    overlapping times, and no response id. Equal histories tie their traces.
    """
    for calls in _with_equal_key(records, _answered_key):
        ended = sorted(calls, key=lambda call: (call.end_ns or 0, time_order.of_call(call)))
        by_model: dict[str | None, list[LlmCall]] = defaultdict(list)
        for call in ended:
            by_model[call.request_model].append(call)
        for some in by_model.values():
            yield from _of_several_scopes(some)


def _answered_key(call: LlmCall) -> tuple[Any, ...] | None:
    if call.response_id or call.error_type or not (parts := comparable_parts(outputs(call))):
        return None
    above = call.parent_span_id
    place = (call.trace_id, above) if above else (call.service_name, None)
    return (*place, dumps(parts), frozenset(tool_call_ids(call)))


def _of_several_scopes(ended: Iterable[LlmCall]) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (record, another one) of a call whose input both have, by different instrumentations.

    Their times overlap: one is inside the other, or a framework tells both in turn that a call
    begins and that it ends. A call has one record of each instrumentation at most, so that parallel
    calls stay apart.

    Args:
        ended: The records, in order of their ends.
    """
    by_input: dict[str, list[list[LlmCall]]] = defaultdict(list)
    for call in ended:
        if call.history.input_hash is None:
            continue
        groups = by_input[call.history.input_hash]
        group = next((one for one in groups if _has_room(one, call)), None)
        if group is None:
            groups.append([call])
        else:
            yield group[0], call
            group.append(call)


def _has_room(group: Sequence[LlmCall], call: LlmCall) -> bool:
    """Return whether a record may be one more of a call that others recorded at the same time."""
    is_other = call.scope_name not in [one.scope_name for one in group]
    return is_other and all(_overlaps(one, call) for one in group)


def _overlaps(one: LlmCall, other: LlmCall) -> bool:
    return (one.start_ns or 0) < (other.end_ns or 0) and (other.start_ns or 0) < (one.end_ns or 0)


def failure(call: LlmCall, nodes: Nodes) -> tuple[Any, ...] | None:
    """Return the key that all records of a failed call share; None if it has a response id.

    The records are children of one span, or separate traces that began in the same interval of
    `SAME_TIME_NS`.
    """
    if not call.error_type or call.response_id:
        return None
    since = (call.start_ns or 0) // SAME_TIME_NS if _is_root(call, nodes) else None
    return (*_shared_key(call, nodes), since)


def _contains(outer: LlmCall, inner: LlmCall) -> bool:
    starts_before = (outer.start_ns or 0) <= (inner.start_ns or 0)
    return starts_before and (inner.end_ns or 0) <= (outer.end_ns or 0)


def _may_overlap(earlier: LlmCall, later: LlmCall) -> bool:
    """Return whether two calls overlap, or may do so because a time is unknown."""
    if earlier.end_ns is None or later.start_ns is None:
        return True
    return later.start_ns < earlier.end_ns
