"""Merge duplicates: one model call or tool execution that several instrumentations recorded."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, NamedTuple

from otel_lightning.collector.derive.messages import tool_parts
from otel_lightning.collector.derive.messages.packing import outputs, unpack
from otel_lightning.collector.derive.passes import sdk_records, side_by_side
from otel_lightning.collector.derive.passes.rollouts import order
from otel_lightning.collector.derive.passes.side_by_side import comparable_parts
from otel_lightning.collector.derive.passes.unanswered_calls import is_unanswered
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, ToolCall
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

CONTENT_RANK = {"full": 0, "truncated": 1, "redacted": 2, "absent": 3}
TOLD_TOGETHER = (
    *("dialect", "content", "input_messages", "output_messages", "tool_definitions"),
    "from_executions",
)
"""Fields taken together from the record with the most content, so that they are consistent."""
FROM_OUTSIDE = ("agent_name", "conversation_id")
"""Fields taken from the outermost record: an agent framework knows them, an SDK does not."""
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
    - Both failed, so there is no response id: the one without content lies inside the time of the
      one with content, under the same parent.
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
    known = {place_of(call): call for call in calls}
    above = nearest_above(nodes, known)
    below = _below(known, _directly_above(nodes, known, above, between))
    # Records with one response id are one call, so a span above two records of it sums up nothing.
    sums = {
        place
        for place, inner in below.items()
        if len(_identities(inner)) > 1 and not all(map(_is_attempt, inner))
    }
    records = [call for place, call in known.items() if place not in sums]
    pairs = [
        *_same_response(records),
        *_late_answers(records),
        *_failures(records),
        *sdk_records.pairs(records),
        *side_by_side.pairs(records),
        *_nested(known, below, sums),
    ]
    merged = _merged(records, pairs, depths(above, above)) if pairs else records
    return Merged(merged, [_aggregate(known[place], nodes[place]) for place in sums])


def _merged(
    records: Sequence[LlmCall], pairs: Iterable[Pair], depth: Mapping[Place, int]
) -> list[LlmCall]:
    """Return the calls that some records show, in the order of their first records."""
    joined = {place for one, other in pairs for place in (place_of(one), place_of(other))}
    # The root of a group is its first record.
    groups = Groups(place for place in map(place_of, records) if place in joined)
    for one, other in pairs:
        groups.join(place_of(one), place_of(other))
    gathered: dict[Place, list[LlmCall]] = defaultdict(list)
    for record in records:
        place = place_of(record)
        gathered[groups.root(place) if place in joined else place].append(record)
    return [
        group[0]
        if len(group) == 1
        else _combine(sorted(group, key=lambda c: _inner_first(c, depth)))
        for group in gathered.values()
    ]


def _directly_above(
    nodes: Nodes,
    known: Mapping[Place, LlmCall],
    above: Mapping[Place, Place],
    between: Collection[Place],
) -> Mapping[Place, Place]:
    """Return the nearest call above each call, if no tool or agent is between the two."""
    if not above or not between:
        return above
    nearest = nearest_above(nodes, {**dict.fromkeys(between), **known})
    return {place: up for place, up in above.items() if nearest[place] == up}


def _below(
    known: Mapping[Place, LlmCall], above: Mapping[Place, Place]
) -> dict[Place, list[LlmCall]]:
    below: dict[Place, list[LlmCall]] = defaultdict(list)
    for place, up in above.items():
        below[up].append(known[place])
    return below


def _nested(
    known: Mapping[Place, LlmCall],
    below: Mapping[Place, Sequence[LlmCall]],
    sums: Collection[Place],
) -> Iterator[Pair]:
    """Yield each call with the only call below it, where the two have equal outputs.

    Of several failed attempts, the last one is of the call; the others were requests by themselves.
    """
    for place, inner in below.items():
        # What is below is one call here, otherwise the span would be among `sums`.
        last = [max(inner, key=order)] if all(map(_is_attempt, inner)) else inner
        if place not in sums and all(_same_output(known[place], one) for one in last):
            yield from ((known[place], one) for one in last if place_of(one) not in sums)


def _is_attempt(call: LlmCall) -> bool:
    """Tell whether a record only says that an attempt of a call failed: it names no model."""
    named = call.request_model or call.response_model
    return call.error_type is not None and named is None and call.content == "absent"


def _identities(calls: Iterable[LlmCall]) -> set[str]:
    return {call.response_id or call.span_id for call in calls}


def _same_output(outer: LlmCall, inner: LlmCall) -> bool:
    """Tell whether two nested calls have the same answer, as far as both recorded one."""
    if outer.response_id and inner.response_id:
        return outer.response_id == inner.response_id
    if _asked(outer) & _asked(inner):  # OpenLIT records one of the parallel tool calls of Responses
        return True
    failed = inner.error_type and not (_is_answered(inner) or outer.error_type)
    if failed and not is_unanswered(outer):
        return False  # another attempt answered, which is not recorded by itself
    if _lost_calls(outer, inner):
        return True
    return _agree(outer, inner) and not _counted_otherwise(outer, inner)


def _lost_calls(outer: LlmCall, inner: LlmCall) -> bool:
    """Tell whether the outer record has the inner one's text and not its tool calls.

    Or the arguments of the only one as its text: a framework asks for structured output that way.
    """
    shown, answered = comparable_parts(outputs(outer)), comparable_parts(outputs(inner))
    calls = [part for part in answered if part["type"] == "tool_call"]
    if not shown or not calls or any(part["type"] != "text" for part in shown):
        return False
    return shown == [part for part in answered if part not in calls] or (
        [parse(part["content"]) for part in shown] == [part["arguments"] for part in calls]
    )


def _asked(call: LlmCall) -> set[str]:
    parts = tool_parts.parts_of(outputs(call), "tool_call")
    return {part["id"] for part in parts if part.get("id")}


def _counted_otherwise(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records differ in both token counts, if content cannot be compared."""
    if _is_answered(one) and _is_answered(other):
        return False
    pairs = (one.input_tokens, other.input_tokens), (one.output_tokens, other.output_tokens)
    return all(None not in pair and pair[0] != pair[1] for pair in pairs)


def _agree(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records have equal answers, or at least one has none."""
    said, answered = comparable_parts(outputs(one)), comparable_parts(outputs(other))
    return not said or not answered or said == answered


def _alike(
    records: Iterable[LlmCall], key: Callable[[LlmCall], Hashable]
) -> Iterator[list[LlmCall]]:
    """Yield the records that have a key, where several have the same one."""
    keyed = [(key(record), record) for record in records]
    repeated = {one for one, count in Counter(one for one, _ in keyed).items() if count > 1 and one}
    by_key: dict[Hashable, list[LlmCall]] = defaultdict(list)
    for one, record in keyed if repeated else ():
        if one in repeated:
            by_key[one].append(record)
    yield from by_key.values()


def _same_response(records: Iterable[LlmCall]) -> Iterator[Pair]:
    """Yield the records that share a response id, and also a trace, or time and output.

    The id alone is not enough, because some servers give every response the same id.
    """
    for calls in _alike(records, attrgetter("response_id")):
        first_of_trace: dict[str, LlmCall] = {}
        latest: LlmCall | None = None
        for call in sorted(calls, key=order):
            same = first_of_trace.setdefault(call.trace_id, call)
            if same is not call:
                yield same, call
            # Calls come in the order of their starts. So a call overlaps an earlier one if it
            # overlaps the one that ends last.
            if latest is not None and _overlap(latest, call) and _agree(latest, call):
                yield latest, call
            if latest is None or (call.end_ns or 0) > (latest.end_ns or 0):
                latest = call


def _late_answers(records: Sequence[LlmCall]) -> Iterator[Pair]:
    """Yield the calls whose streamed answer was recorded as a separate span, and that span.

    It belongs to the latest earlier call with the same input and parent that has no answer. The
    stream may have failed, which only the record of its answer tells then.
    """
    if not any(map(_took_no_time, records)):
        return
    waiting: dict[tuple[Any, ...], list[LlmCall]] = defaultdict(list)
    for call in sorted(records, key=order):
        key = _request_key(call)
        # Logfire writes the answer of a stream as a log: a span that starts and ends at one time.
        if _took_no_time(call) and (call.error_type or _is_answered(call)):
            unanswered = waiting.get(key) or waiting.get(_without_error(key))
            if unanswered:
                yield unanswered.pop(), call
        elif not _is_answered(call):
            waiting[key].append(call)


def _took_no_time(call: LlmCall) -> bool:
    return call.start_ns is not None and call.start_ns == call.end_ns


def _request_key(call: LlmCall) -> tuple[Any, ...]:
    """Return what a request shares with the record of its answer; the error is the last of it."""
    # A packed input is the same JSON text that `dumps` returns.
    sent = call.packed[0] if call.packed else dumps(call.input_messages)
    return (*_shared_key(call), sent, call.error_type)


def _without_error(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*key[:-1], None)


def _is_answered(call: LlmCall) -> bool:
    return bool(call.packed[1] if call.packed else call.output_messages)


def _shared_key(call: LlmCall) -> tuple[Any, ...]:
    """Return the key that a call's other records share: service, model and parent.

    The parent is None for a call without one, whose other records may be in separate traces.
    """
    place = (call.trace_id, call.parent_span_id) if call.parent_span_id else None
    return call.service_name, call.request_model, place


def keys(call: LlmCall, saw: str | None) -> Iterator[str]:
    """Yield the keys by which separate traces with records of one call find each other.

    Args:
        call: A call as recorded by one span without a parent.
        saw: The hash of the model's input, if it is known.
    """
    failed = failure(call)
    if failed:
        yield f"failure:{failed}"
    if failed and not _took_no_time(call):  # it is not the end of a stream that failed
        return
    if saw and call.operation != "embeddings" and _is_half(call):
        yield f"answer:{saw}"


def _is_half(call: LlmCall) -> bool:
    """Tell whether this span may hold only the question or only the answer of a call."""
    return _took_no_time(call) or not _is_answered(call)


def _failures(records: Iterable[LlmCall]) -> Iterator[Pair]:
    """Yield the record around a failed call, and that of the call by an SDK's own tracer."""
    for calls in _alike(records, failure):
        ended = sorted(calls, key=lambda call: (call.end_ns or 0, order(call)))
        outer = [call for call in ended if call.content != "absent"]
        # An outer record takes one inner record at most, so parallel calls that failed stay apart.
        for call in (one for one in ended if one.content == "absent"):
            around = next((one for one in outer if _contains(one, call)), None)
            if around is not None:
                outer.remove(around)
                yield around, call


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
    begun = (outer.start_ns or 0) <= (inner.start_ns or 0)
    return begun and (inner.end_ns or 0) <= (outer.end_ns or 0)


def _overlap(earlier: LlmCall, later: LlmCall) -> bool:
    if earlier.end_ns is None or later.start_ns is None:
        return True
    return later.start_ns < earlier.end_ns


def _inner_first(call: LlmCall, depth: Mapping[Place, int]) -> tuple[bool, int, int, int, Place]:
    place = place_of(call)
    # False sorts first: the record of a late answer is the outermost. Next to each other, the
    # record with the shorter time is the inner one.
    return _took_no_time(call), -depth.get(place, 0), -(call.start_ns or 0), call.end_ns or 0, place


def _combine(layers: list[LlmCall]) -> LlmCall:
    """Merge the records of one call into one row.

    Args:
        layers: The records, innermost first. The innermost one gives ids and times.
    """
    layers = [unpack(layer) for layer in layers]
    inner, outer = layers[0], layers[-1]
    home = _home(layers)
    richest = min(layers, key=_richness)
    together = {name: getattr(richest, name) for name in TOLD_TOGETHER}
    # A parent's span id has a meaning only in its own trace.
    above = outer if outer.trace_id == home.trace_id else home
    call = replace(inner, parent_span_id=above.parent_span_id, **together)
    call.trace_id, call.span_id, call.history = home.trace_id, home.span_id, home.history
    places = {place_of(layer) for layer in layers}
    call.merged_places = sorted(places - {place_of(home)})
    call.lost_ids = any(layer.lost_ids for layer in layers)
    call.late_end = any(layer.late_end for layer in layers)
    if _took_no_time(outer):  # the end of a stream, so its error is that of the call
        call.error_type = call.error_type or outer.error_type
    call.lost_arguments = any(layer.lost_arguments for layer in layers)
    for name in FROM_OUTSIDE:
        setattr(call, name, _first(layers[::-1], name))
    for name in (each.name for each in fields(LlmCall)):
        # The innermost record decides whether the call failed: an outer layer may fail after the
        # model answered. Without an error, a message of one would be wrong.
        unknown = getattr(call, name) is None and name != "error_type"
        if unknown and (name != "error_message" or call.error_type):
            setattr(call, name, _first(layers, name))
    if call.error_type is None and not call.output_messages and call.operation != "embeddings":
        # The record with the content is one that failed, so it has no answer.
        call.content = "truncated" if call.content == "full" else call.content
    # Some records repeat the requested model as the one that answered, where others know it.
    answering = (one for one in layers if one.response_model not in (None, one.request_model))
    if (known := next(answering, None)) is not None:
        call.response_model = known.response_model
    # Outermost first, so that the innermost value of a parameter wins: it is the closest to the
    # request.
    call.request_params = {k: v for layer in layers[::-1] for k, v in layer.request_params.items()}
    call.merged_span_ids = sorted({layer.span_id for layer in layers} - {home.span_id})
    return call


def _home(layers: Sequence[LlmCall]) -> LlmCall:
    """Return the record whose trace id and span id the merged call gets.

    An SDK that was not called inside the framework's span writes a separate trace, without the
    agent and its tools. So the trace is that of the outermost record with a parent, and the record
    is the innermost one in this trace.
    """
    traces = [layer.trace_id for layer in layers if layer.parent_span_id]
    home = traces[-1] if traces else layers[0].trace_id
    return next(layer for layer in layers if layer.trace_id == home)


def _richness(call: LlmCall) -> tuple[int, int, bool]:
    parts = [part for message in call.output_messages or [] for part in message["parts"]]
    spelled = all("arguments_raw" in part for part in parts if part["type"] == "tool_call")
    # The smallest is the richest. Of equals, the record with the arguments as the model wrote them
    # wins: token ids can be compared with these only.
    return CONTENT_RANK[call.content], -len(_asked(call)), not spelled


def _first(layers: Iterable[LlmCall], name: str) -> Any:
    values = (getattr(layer, name) for layer in layers)
    return next((value for value in values if value is not None), None)


def _aggregate(call: LlmCall, node: Node) -> AgentRun:
    return AgentRun(
        trace_id=call.trace_id,
        span_id=call.span_id,
        name=call.agent_name or node.name,
        kind="agent",
        parent_span_id=call.parent_span_id,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        conversation_id=call.conversation_id,
    )


def outermost_tools(tools: Iterable[ToolCall], nodes: Nodes) -> list[ToolCall]:
    """Drop a tool's span below another span of the same tool, or of the same tool call.

    Fields that only the inner span has are copied to the outer one.
    """
    known = {(tool.trace_id or "", tool.span_id or ""): tool for tool in tools}
    above = nearest_above(nodes, known)
    kept = []
    for place, tool in known.items():
        up = above.get(place)
        if up is None or not _is_same(known[up], tool):
            kept.append(tool)
            continue
        for name in ("tool_call_id", "arguments", "result", "error_type"):
            if getattr(known[up], name) is None:
                setattr(known[up], name, getattr(tool, name))
    return kept


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    asked = one.tool_call_id is not None and one.tool_call_id == other.tool_call_id
    return asked or one.name == other.name


def outermost_agents(runs: Iterable[AgentRun]) -> list[AgentRun]:
    """Drop an agent's span directly below another of the same agent: it is a duplicate."""
    known = {(run.trace_id, run.span_id): run for run in runs}
    kept = []
    for run in known.values():
        up = known.get((run.trace_id, run.parent_span_id or ""))
        if up is None or (up.name, up.kind) != (run.name, run.kind):
            kept.append(run)
    return kept
