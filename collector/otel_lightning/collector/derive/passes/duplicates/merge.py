"""Merge duplicates: records of one model call by several instrumentations."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from otel_lightning.collector.derive.passes.duplicates import (
    equal_keys,
    merged_records,
    nested,
    sdk_records,
    side_by_side,
)
from otel_lightning.collector.derive.rows import AgentRun, LlmCall
from otel_lightning.collector.derive.span_tree import (
    Node,
    Nodes,
    Place,
    depths,
    nearest_above,
    place_of,
)
from otel_lightning.collector.derive.union_find import Groups


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
    below = nested.calls_below(by_place, nodes, above, between)
    repeated = {place_of(call) for _, call in equal_keys.failures(by_place.values(), nodes)}
    aggregates = nested.find_aggregates(below, repeated)
    records = [call for place, call in by_place.items() if place not in aggregates]
    pairs = [
        *equal_keys.pairs(records, nodes),
        *sdk_records.pairs(records),
        *side_by_side.pairs(records),
        *nested.pairs(by_place, below, aggregates),
    ]
    merged = _merged(records, pairs, depths(above, above)) if pairs else records
    return Merged(merged, [_agent_run(by_place[place], nodes[place]) for place in aggregates])


def _merged(
    records: Sequence[LlmCall], pairs: Iterable[tuple[LlmCall, LlmCall]], depth: Mapping[Place, int]
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
