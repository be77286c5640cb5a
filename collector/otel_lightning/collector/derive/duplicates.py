"""One model call or tool execution that several layers recorded, made one row."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from otel_lightning.collector.derive import reading
from otel_lightning.collector.derive.rollouts import order
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Message, ToolCall
from otel_lightning.collector.derive.span_tree import (
    Node,
    Nodes,
    Place,
    depths,
    nearest_above,
    place_of,
)
from otel_lightning.collector.derive.text import messages
from otel_lightning.collector.derive.text.json_text import dumps
from otel_lightning.collector.derive.text.packing import outputs, unpack

CONTENT_RANK = {"full": 0, "truncated": 1, "redacted": 2, "absent": 3}
TOLD_TOGETHER = ("dialect", "content", "input_messages", "output_messages", "tool_definitions")
"""Taken from the layer that recorded the most, so that they describe each other."""
FROM_OUTSIDE = ("agent_name", "conversation_id")
"""Known best by the outermost layer: an agent framework names what an SDK cannot see."""
SAME_TIME_NS = 10_000_000_000
"""Records of one failed call without a parent are looked for within these seconds only."""


class Merged(NamedTuple):
    """Model calls, one row each, and the spans that only summed up several calls."""

    calls: list[LlmCall]
    aggregates: list[AgentRun]


def merge_calls(calls: Iterable[LlmCall], nodes: Nodes, between: Collection[Place] = ()) -> Merged:
    """Merge the spans that record the same model call.

    They are the same call if they share a response id and a trace or the time that it took, or if
    one is the only model call below the other and they give equal output. A span that took no time
    holds the answer of the call before it. A failed call has no id: a record without content beside
    one with it, and inside its time, is the same. A span above several different calls sums them
    up, and is an agent run. Two calls that merely say the same stay two, and so does a call that a
    tool or an agent inside the other made.

    Args:
        calls: What each span by itself says of a call.
        nodes: All spans.
        between: The spans of tools and agents.
    """
    known = {place_of(call): call for call in calls}
    above = nearest_above(nodes, known)
    below = _below(known, _directly_above(nodes, known, above, between))
    sums = {place for place, inner in below.items() if len(_identities(inner)) > 1}
    groups: dict[Place, Place] = {place: place for place in known if place not in sums}
    _join_by_response(groups, known)
    _join_late_answers(groups, known)
    _join_failures(groups, known)
    for place, inner in below.items():
        if place not in sums and all(_same_output(known[place], one) for one in inner):
            for one in inner:
                _join(groups, place, place_of(one))
    depth = depths(above, above)
    gathered: dict[Place, list[LlmCall]] = defaultdict(list)
    for place in groups:
        gathered[_root(groups, place)].append(known[place])
    merged = [
        group[0]
        if len(group) == 1
        else _combine(sorted(group, key=lambda c: _inner_first(c, depth)))
        for group in gathered.values()
    ]
    return Merged(merged, [_aggregate(known[place], nodes[place]) for place in sums])


def _directly_above(
    nodes: Nodes,
    known: Mapping[Place, LlmCall],
    above: Mapping[Place, Place],
    between: Collection[Place],
) -> Mapping[Place, Place]:
    """Return the nearest call above each call, where no tool and no agent is between the two."""
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


def _identities(calls: Iterable[LlmCall]) -> set[str]:
    return {call.response_id or call.span_id for call in calls}


def _same_output(outer: LlmCall, inner: LlmCall) -> bool:
    """Tell whether two nested calls answer the same, as far as both say what they answered."""
    if outer.response_id and inner.response_id:
        return outer.response_id == inner.response_id
    return _agree(outer, inner) and not _counted_otherwise(outer, inner)


def _counted_otherwise(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records without content to compare counted other tokens on both sides."""
    if _is_answered(one) and _is_answered(other):
        return False
    pairs = (one.input_tokens, other.input_tokens), (one.output_tokens, other.output_tokens)
    return all(None not in pair and pair[0] != pair[1] for pair in pairs)


def _agree(one: LlmCall, other: LlmCall) -> bool:
    """Tell whether two records do not contradict each other in what was answered."""
    said, answered = _said(outputs(one)), _said(outputs(other))
    return not said or not answered or said == answered


def _said(outputs: Iterable[Message]) -> list[Any]:
    keys = ("type", "content", "name", "arguments")
    return [
        {key: part.get(key) for key in keys}
        for message in outputs
        for part in message["parts"]
        if part["type"] != "reasoning"
    ]


def _join_by_response(groups: dict[Place, Place], known: Mapping[Place, LlmCall]) -> None:
    """Join the records of one response: they share its id and a trace, or its time and output.

    The id alone is not enough: some servers give the same one to every response.
    """
    by_id: dict[str, list[LlmCall]] = defaultdict(list)
    for place in groups:
        response_id = known[place].response_id
        if response_id:
            by_id[response_id].append(known[place])
    for calls in (several for several in by_id.values() if len(several) > 1):
        first_of_trace: dict[str, LlmCall] = {}
        latest: LlmCall | None = None
        for call in sorted(calls, key=order):
            same = first_of_trace.setdefault(call.trace_id, call)
            if same is not call:
                _join(groups, place_of(same), place_of(call))
            if latest is not None and _overlap(latest, call) and _agree(latest, call):
                _join(groups, place_of(latest), place_of(call))
            if latest is None or (call.end_ns or 0) > (latest.end_ns or 0):
                latest = call


def _join_late_answers(groups: dict[Place, Place], known: Mapping[Place, LlmCall]) -> None:
    """Join the answer of a stream that came as a span of its own, which took no time.

    It belongs to the latest call before it that asked the same in its place and has no answer.
    """
    calls = [known[place] for place in groups]
    if not any(map(_took_no_time, calls)):
        return
    waiting: dict[tuple[Any, ...], list[LlmCall]] = defaultdict(list)
    for call in sorted(calls, key=order):
        if not _is_answered(call):
            waiting[_asked(call)].append(call)
        elif _took_no_time(call) and (asked := waiting.get(_asked(call))):
            _join(groups, place_of(asked.pop()), place_of(call))


def _took_no_time(call: LlmCall) -> bool:
    return call.start_ns is not None and call.start_ns == call.end_ns


def _asked(call: LlmCall) -> tuple[Any, ...]:
    sent = call.packed[0] if call.packed else dumps(call.input_messages)
    return (*_beside(call), call.error_type, sent)


def _is_answered(call: LlmCall) -> bool:
    return bool(call.packed[1] if call.packed else call.output_messages)


def _beside(call: LlmCall) -> tuple[Any, ...]:
    """Return where a call's other records are: below its parent, or in traces of their own."""
    place = (call.trace_id, call.parent_span_id) if call.parent_span_id else None
    return call.service_name, call.request_model, place


def keys(call: LlmCall, saw: str | None) -> Iterator[str]:
    """Yield the keys by which the traces of one call's records find each other.

    Args:
        call: A call as one span without a parent records it.
        saw: The hash of what the model saw, if that is known.
    """
    if failed := failure(call):
        yield f"failure:{failed}"
    elif saw and call.operation != "embeddings" and _is_half(call):
        yield f"answer:{saw}"


def _is_half(call: LlmCall) -> bool:
    """Tell whether a call's answer may have come as another span, or be that span."""
    return _took_no_time(call) or not _is_answered(call)


def _join_failures(groups: dict[Place, Place], known: Mapping[Place, LlmCall]) -> None:
    """Join what an SDK's own tracer wrote of a failed call with what was written around it."""
    beside: dict[tuple[Any, ...], list[LlmCall]] = defaultdict(list)
    for place in groups:
        if failed := failure(known[place]):
            beside[failed].append(known[place])
    for calls in (several for several in beside.values() if len(several) > 1):
        ended = sorted(calls, key=lambda call: (call.end_ns or 0, order(call)))
        outer = [call for call in ended if call.content != "absent"]
        for call in (one for one in ended if one.content == "absent"):
            around = next((one for one in outer if _contains(one, call)), None)
            if around is not None:
                outer.remove(around)
                _join(groups, place_of(around), place_of(call))


def failure(call: LlmCall) -> tuple[Any, ...] | None:
    """Return what all records of a failed call share, if nothing better tells which call it is.

    They are children of one span, or each is a trace of its own that began in the same seconds.
    """
    if not call.error_type or call.response_id:
        return None
    since = None if call.parent_span_id else (call.start_ns or 0) // SAME_TIME_NS
    return (*_beside(call), since)


def _contains(outer: LlmCall, inner: LlmCall) -> bool:
    begun = (outer.start_ns or 0) <= (inner.start_ns or 0)
    return begun and (inner.end_ns or 0) <= (outer.end_ns or 0)


def _overlap(earlier: LlmCall, later: LlmCall) -> bool:
    if earlier.end_ns is None or later.start_ns is None:
        return True
    return later.start_ns < earlier.end_ns


def _root(groups: dict[Place, Place], place: Place) -> Place:
    while groups[place] != place:
        groups[place] = groups[groups[place]]
        place = groups[place]
    return place


def _join(groups: dict[Place, Place], one: Place, other: Place) -> None:
    if one in groups and other in groups:
        groups[_root(groups, other)] = _root(groups, one)


def _inner_first(call: LlmCall, depth: Mapping[Place, int]) -> tuple[bool, int, int, int, Place]:
    place = place_of(call)
    return _took_no_time(call), -depth.get(place, 0), -(call.start_ns or 0), call.end_ns or 0, place


def _combine(layers: list[LlmCall]) -> LlmCall:
    """Make one call of its layers, innermost first: that one knows identity and time."""
    layers = [unpack(layer) for layer in layers]
    inner, outer = layers[0], layers[-1]
    home = _home(layers)
    richest = min(layers, key=_richness)
    told = {name: getattr(richest, name) for name in TOLD_TOGETHER}
    above = outer if outer.trace_id == home.trace_id else home
    call = replace(inner, parent_span_id=above.parent_span_id, **told)
    call.trace_id, call.span_id = home.trace_id, home.span_id
    places = {place_of(layer) for layer in layers}
    call.merged_places = sorted(places - {place_of(home)})
    call.lost_ids = any(layer.lost_ids for layer in layers)
    for name in FROM_OUTSIDE:
        setattr(call, name, _first(layers[::-1], name))
    for name in (each.name for each in fields(LlmCall)):
        unknown = getattr(call, name) is None and name != "error_type"
        if unknown and (name != "error_message" or call.error_type):
            setattr(call, name, _first(layers, name))
    call.request_params = {k: v for layer in layers[::-1] for k, v in layer.request_params.items()}
    call.merged_span_ids = sorted({layer.span_id for layer in layers} - {home.span_id})
    return call


def _home(layers: Sequence[LlmCall]) -> LlmCall:
    """Return the layer whose place is the call's: the innermost one in the trace of an agent.

    An SDK that was not called inside the framework's span leaves a trace of its own, without the
    agent and its tools. So the trace is that of the outermost layer that has a parent.
    """
    traces = [layer.trace_id for layer in layers if layer.parent_span_id]
    home = traces[-1] if traces else layers[0].trace_id
    return next(layer for layer in layers if layer.trace_id == home)


def _richness(call: LlmCall) -> tuple[int, bool]:
    parts = [part for message in call.output_messages or [] for part in message["parts"]]
    spelled = all("arguments_raw" in part for part in parts if part["type"] == "tool_call")
    return CONTENT_RANK[call.content], not spelled


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


def add_requests(calls: Iterable[LlmCall], requests: Sequence[ToolCall]) -> list[LlmCall]:
    """Put the tool calls that were recorded as spans below a call into the call's output.

    An execution counts where the call ended to have tools called, and its output shows none.

    Returns:
        The calls that were completed.
    """
    completed: list[LlmCall] = []
    known = {place_of(call): call for call in calls} if requests else {}
    lacks: dict[Place, bool] = {}
    for request in requests:
        call = known.get((request.trace_id or "", request.llm_span_id or ""))
        if call is None:
            continue
        is_lost = call.finish_reason == "tool_calls" and not reading.asks_for_tools(unpack(call))
        if not lacks.setdefault(place_of(call), is_lost) and request.source != "request":
            continue
        completed.append(unpack(call))
        output = call.output_messages[0] if call.output_messages else messages.choice([])
        if request.tool_call_id not in {part.get("id") for part in output["parts"]}:
            asked = messages.tool_call_part(request.tool_call_id, request.name, request.arguments)
            output["parts"].append(asked)
        call.output_messages = [output, *(call.output_messages or [])[1:]]
    return completed


def outermost_tools(tools: Iterable[ToolCall], nodes: Nodes) -> list[ToolCall]:
    """Drop a tool's span below another of the same tool, keeping what only the inner one knows."""
    known = {(tool.trace_id or "", tool.span_id or ""): tool for tool in tools}
    above = nearest_above(nodes, known)
    kept = []
    for place, tool in known.items():
        up = above.get(place)
        if up is None or known[up].name != tool.name:
            kept.append(tool)
            continue
        for name in ("tool_call_id", "arguments", "result", "error_type"):
            if getattr(known[up], name) is None:
                setattr(known[up], name, getattr(tool, name))
    return kept


def outermost_agents(runs: Iterable[AgentRun]) -> list[AgentRun]:
    """Drop an agent's span directly below another of the same agent: one run, written twice."""
    known = {(run.trace_id, run.span_id): run for run in runs}
    kept = []
    for run in known.values():
        up = known.get((run.trace_id, run.parent_span_id or ""))
        if up is None or (up.name, up.kind) != (run.name, run.kind):
            kept.append(run)
    return kept
