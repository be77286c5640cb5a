"""Find duplicates: records of one model call by several instrumentations."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from otel_lightning.collector.derive.messages.packing import has_output, outputs
from otel_lightning.collector.derive.passes.answers.unanswered_calls import is_unanswered
from otel_lightning.collector.derive.passes.duplicates import (
    merged_records,
    sdk_records,
    side_by_side,
)
from otel_lightning.collector.derive.passes.duplicates.merged_records import (
    is_instant,
    tool_call_ids,
)
from otel_lightning.collector.derive.passes.duplicates.side_by_side import comparable_parts
from otel_lightning.collector.derive.passes.rollouts.rollouts import order
from otel_lightning.collector.derive.rows import AgentRun, LlmCall
from otel_lightning.collector.derive.span_tree import (
    Node,
    Nodes,
    Place,
    depths,
    nearest_above,
    place_of,
)
from otel_lightning.collector.derive.text.json_text import dumps, parse
from otel_lightning.collector.derive.union_find import Groups

SAME_TIME_NS = 10_000_000_000
"""Length (10 s) of the time interval in which records of one failed call without a parent must
start to be merged."""


Pair = tuple[LlmCall, LlmCall]
"""Two records of the same call."""


class Merged(NamedTuple):
    """Model calls without duplicates, and the spans that only summed up several calls."""

    calls: list[LlmCall]
    aggregates: list[AgentRun]


def merge_calls(calls: Iterable[LlmCall], nodes: Nodes, between: Collection[Place] = ()) -> Merged:
    """Merge the spans that record the same model call.

    Two records are duplicates if one of these holds:

    - They share a response id, and either the trace or overlapping times.
    - One is the only model call below the other, and their outputs are equal.
    - One took no time: it holds the answer of the call before it.
    - Both failed, so there is no response id: one lies inside the time of the other, under the same
      parent, and has no content, or their times overlap, the inputs are equal, and different
      instrumentations wrote them.
    - Neither knows the response id, and input, answer and parent are the same, likewise.
    - One is that of a provider's SDK, and only the other fits it: see `sdk_records`.
    - One is that of a client next to that of the framework: see `side_by_side`.

    A span above several different calls sums them up, and becomes an agent run, unless they are
    failed attempts of its own call. Two calls with merely equal content stay separate. So does a
    call that a tool or agent inside another call made.

    Args:
        calls: The calls as read from each span alone.
        nodes: All spans.
        between: The spans of tools and agents.
    """
    by_place = {place_of(call): call for call in calls}
    above = nearest_above(nodes, by_place)
    below = _below(by_place, _directly_above(nodes, by_place, above, between))
    repeated = {place_of(call) for _, call in _failures(by_place.values())}
    # A span above two records of one call sums up nothing.
    aggregates = {
        place
        for place, inner in below.items()
        if len(_identities(inner, repeated)) > 1 and not all(map(_is_attempt, inner))
    }
    records = [call for place, call in by_place.items() if place not in aggregates]
    pairs = [
        *_same_response(records),
        *_late_answers(records),
        *_failures(records),
        *_without_ids(records),
        *sdk_records.pairs(records),
        *side_by_side.pairs(records),
        *_nested(by_place, below, aggregates),
    ]
    merged = _merged(records, pairs, depths(above, above)) if pairs else records
    return Merged(merged, [_agent_run(by_place[place], nodes[place]) for place in aggregates])


def _merged(
    records: Sequence[LlmCall], pairs: Iterable[Pair], depth: Mapping[Place, int]
) -> list[LlmCall]:
    """Return one call for each group of duplicates, in the order of their first records."""
    paired = {place for one, other in pairs for place in (place_of(one), place_of(other))}
    # The root of a group is its first record.
    groups = Groups(place for place in map(place_of, records) if place in paired)
    for one, other in pairs:
        groups.join(place_of(one), place_of(other))
    by_root: dict[Place, list[LlmCall]] = defaultdict(list)
    for record in records:
        place = place_of(record)
        by_root[groups.root(place) if place in paired else place].append(record)
    return [
        group[0] if len(group) == 1 else merged_records.merge(group, depth)
        for group in by_root.values()
    ]


def _directly_above(
    nodes: Nodes,
    by_place: Mapping[Place, LlmCall],
    above: Mapping[Place, Place],
    between: Collection[Place],
) -> Mapping[Place, Place]:
    """Return the nearest call above each call, if no tool or agent is between the two."""
    if not above or not between:
        return above
    nearest = nearest_above(nodes, {**dict.fromkeys(between), **by_place})
    return {place: up for place, up in above.items() if nearest[place] == up}


def _below(
    by_place: Mapping[Place, LlmCall], above: Mapping[Place, Place]
) -> dict[Place, list[LlmCall]]:
    below: dict[Place, list[LlmCall]] = defaultdict(list)
    for place, up in above.items():
        below[up].append(by_place[place])
    return below


def _nested(
    by_place: Mapping[Place, LlmCall],
    below: Mapping[Place, Sequence[LlmCall]],
    aggregates: Collection[Place],
) -> Iterator[Pair]:
    """Yield each call with the only call below it, where the two have equal outputs.

    Of several failed attempts, the last one is of the call; the others were requests by themselves.
    """
    for place, inner in below.items():
        if place in aggregates:
            continue
        outer = by_place[place]
        # Otherwise, all records below are of one call: else the span would be an aggregate.
        duplicates = [max(inner, key=order)] if all(map(_is_attempt, inner)) else inner
        if all(_same_output(outer, one) for one in duplicates):
            yield from ((outer, one) for one in duplicates if place_of(one) not in aggregates)


def _is_attempt(call: LlmCall) -> bool:
    """Tell whether a record only says that an attempt of a call failed: it names no model."""
    named = call.request_model or call.response_model
    return call.error_type is not None and named is None and call.content == "absent"


def _identities(calls: Iterable[LlmCall], repeated: Collection[Place]) -> set[str]:
    """Return an id of each call that some records are of.

    Args:
        calls: The records.
        repeated: The records of failed calls that others repeat.
    """
    return {call.response_id or call.span_id for call in calls if place_of(call) not in repeated}


def _same_output(outer: LlmCall, inner: LlmCall) -> bool:
    """Tell whether two nested calls have the same answer, as far as both recorded one."""
    if outer.response_id and inner.response_id:
        return outer.response_id == inner.response_id
    # OpenLIT records one of the parallel tool calls of Responses.
    if tool_call_ids(outer) & tool_call_ids(inner):
        return True
    only_inner_failed = inner.error_type and not (has_output(inner) or outer.error_type)
    if only_inner_failed and not is_unanswered(outer):
        return False  # another attempt answered, which is not recorded by itself
    if _lacks_tool_calls(outer, inner):
        return True
    return _agree(outer, inner) and not _differ_in_tokens(outer, inner)


def _lacks_tool_calls(outer: LlmCall, inner: LlmCall) -> bool:
    """Tell whether the outer record has the inner one's text and not its tool calls.

    Or the arguments of the only one as its text: a framework asks for structured output that way.
    """
    texts, inner_parts = comparable_parts(outputs(outer)), comparable_parts(outputs(inner))
    tool_calls = [part for part in inner_parts if part["type"] == "tool_call"]
    if not texts or not tool_calls or any(part["type"] != "text" for part in texts):
        return False
    if texts == [part for part in inner_parts if part not in tool_calls]:
        return True
    return [parse(part["content"]) for part in texts] == [part["arguments"] for part in tool_calls]


def _differ_in_tokens(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records differ in both token counts, if content cannot be compared."""
    if has_output(one) and has_output(other):
        return False
    pairs = (one.input_tokens, other.input_tokens), (one.output_tokens, other.output_tokens)
    return all(None not in pair and pair[0] != pair[1] for pair in pairs)


def _agree(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records have equal answers, or at least one has none."""
    parts, other_parts = comparable_parts(outputs(one)), comparable_parts(outputs(other))
    return not parts or not other_parts or parts == other_parts


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


def _same_response(records: Iterable[LlmCall]) -> Iterator[Pair]:
    """Yield the records that share a response id, and also a trace, or time and output.

    The id alone is not enough, because some servers give every response the same id.
    """
    for calls in _with_equal_key(records, attrgetter("response_id")):
        first_of_trace: dict[str, LlmCall] = {}
        latest: LlmCall | None = None
        for call in sorted(calls, key=order):
            same = first_of_trace.setdefault(call.trace_id, call)
            if same is not call:
                yield same, call
            # Calls come in the order of their starts. So a call overlaps an earlier one if it
            # overlaps the one that ends last.
            if latest is not None and _may_overlap(latest, call) and _agree(latest, call):
                yield latest, call
            if latest is None or (call.end_ns or 0) > (latest.end_ns or 0):
                latest = call


def _late_answers(records: Sequence[LlmCall]) -> Iterator[Pair]:
    """Yield the calls whose streamed answer was recorded as a separate span, and that span.

    It belongs to the latest earlier call with the same input and parent that has no answer. The
    stream may have failed, which only the record of its answer tells then.
    """
    if not any(map(is_instant, records)):
        return
    waiting: dict[tuple[Any, ...], list[LlmCall]] = defaultdict(list)
    for call in sorted(records, key=order):
        key = _request_key(call)
        # Logfire writes the answer of a stream as a log: a span that starts and ends at one time.
        if is_instant(call) and (call.error_type or has_output(call)):
            unanswered = waiting.get(key) or waiting.get(_without_error(key))
            if unanswered:
                yield unanswered.pop(), call
        elif not has_output(call):
            waiting[key].append(call)


def _request_key(call: LlmCall) -> tuple[Any, ...]:
    """Return what a request shares with the record of its answer; the error is the last of it."""
    # A packed input is the same JSON text that `dumps` returns.
    sent = call.packed[0] if call.packed else dumps(call.input_messages)
    return (*_shared_key(call), sent, call.error_type)


def _without_error(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*key[:-1], None)


def _shared_key(call: LlmCall) -> tuple[Any, ...]:
    """Return the key that a call's other records share: service, model and parent.

    The parent is None for a call without one, whose other records may be in separate traces.
    """
    place = (call.trace_id, call.parent_span_id) if call.parent_span_id else None
    return call.service_name, call.request_model, place


def trace_keys(call: LlmCall) -> Iterator[str]:
    """Yield the keys by which separate traces with records of one call find each other.

    Args:
        call: A call as recorded by one span without a parent.
    """
    failure_key = failure(call)
    if failure_key:
        yield f"failure:{failure_key}"
    if failure_key and not is_instant(call):  # it is not the end of a stream that failed
        return
    input_hash = call.history.input_hash
    if input_hash and call.operation != "embeddings" and _is_half(call):
        yield f"answer:{input_hash}"


def _is_half(call: LlmCall) -> bool:
    """Tell whether this span may hold only the question or only the answer of a call."""
    return is_instant(call) or not has_output(call)


def _failures(records: Iterable[LlmCall]) -> Iterator[Pair]:
    """Yield the record around a failed call, and one inside it by another instrumentation."""
    failed = [record for record in records if record.error_type]
    for calls in _with_equal_key(failed, failure):
        ended = sorted(calls, key=lambda call: (call.end_ns or 0, order(call)))
        outer = [call for call in ended if call.content != "absent"]
        # An outer record takes one inner record at most, so parallel calls that failed stay apart.
        for call in (one for one in ended if one.content == "absent"):
            around = next((one for one in outer if _contains(one, call)), None)
            if around is not None:
                outer.remove(around)
                yield around, call
        yield from _of_several_scopes(one for one in ended if one.content != "absent")


def _without_ids(records: Iterable[LlmCall]) -> Iterator[Pair]:
    """Yield the records of one call by several listeners to a framework, such as LangChain.

    They have one parent or, in traces of their own, one service; the same input and answer,
    overlapping times, and no response id. Equal histories tie their traces.
    """
    for calls in _with_equal_key(records, _answered_key):
        ended = sorted(calls, key=lambda call: (call.end_ns or 0, order(call)))
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


def _of_several_scopes(ended: Iterable[LlmCall]) -> Iterator[Pair]:
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
    """Tell whether a record may be one more of a call that others recorded at the same time."""
    is_other = call.scope_name not in [one.scope_name for one in group]
    return is_other and all(_overlaps(one, call) for one in group)


def _overlaps(one: LlmCall, other: LlmCall) -> bool:
    return (one.start_ns or 0) < (other.end_ns or 0) and (other.start_ns or 0) < (one.end_ns or 0)


def failure(call: LlmCall) -> tuple[Any, ...] | None:
    """Return the key that all records of a failed call share; None if it has a response id.

    The records are children of one span, or separate traces that began in the same interval of
    `SAME_TIME_NS`.
    """
    if not call.error_type or call.response_id:
        return None
    since = None if call.parent_span_id else (call.start_ns or 0) // SAME_TIME_NS
    return (*_shared_key(call), since)


def _contains(outer: LlmCall, inner: LlmCall) -> bool:
    starts_before = (outer.start_ns or 0) <= (inner.start_ns or 0)
    return starts_before and (inner.end_ns or 0) <= (outer.end_ns or 0)


def _may_overlap(earlier: LlmCall, later: LlmCall) -> bool:
    """Tell whether two calls overlap, or may do so because a time is unknown."""
    if earlier.end_ns is None or later.start_ns is None:
        return True
    return later.start_ns < earlier.end_ns


def _agent_run(call: LlmCall, node: Node) -> AgentRun:
    # A span such as `chat gpt-4o` is named after a model, not an agent.
    is_named = not (call.request_model and call.request_model in (node.name or ""))
    return AgentRun(
        trace_id=call.trace_id,
        span_id=call.span_id,
        name=call.agent_name or (node.name if is_named else None),
        kind="agent",
        parent_span_id=call.parent_span_id,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        conversation_id=call.conversation_id,
    )
