"""Assign each span to a rollout.

The rollout id is the first of these that exists: a rollout id on the span, a rollout id on its
resource, a conversation id, the rollout of the agent that sent this one a message, or of the call
that this one continues (its input begins with the earlier call's input and output), the trace id.
Calls of one trace without a stated id stay in one rollout.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

from otel_lightning.collector.derive.passes.rollouts.continuations import continuations
from otel_lightning.collector.derive.passes.rollouts.stated_ids import StatedIds
from otel_lightning.collector.derive.rows import LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, Place, place_of
from otel_lightning.collector.derive.union_find import Groups


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollout of every span and trace of a closed set (no trace outside is tied to it)."""

    rollout_ids: StatedIds
    """Stated rollout ids."""
    conversation_ids: StatedIds
    """Stated conversation ids."""
    by_trace: Mapping[str, str]
    """Trace id to rollout id, for spans without a stated id."""
    of_whole_trace: Mapping[str, str]
    """Trace id to rollout id, for traces whose spans all have the same one."""

    def of(self, trace_id: str, span_id: str | None) -> str:
        """Return the rollout of a span or, if the span is unknown, of its trace."""
        if rollout_id := self.of_whole_trace.get(trace_id):
            return rollout_id
        return self.stated((trace_id, span_id or "")) or self.by_trace.get(trace_id, trace_id)

    def states(self, trace_id: str) -> bool:
        """Return whether any span of a trace states its rollout or conversation."""
        return trace_id in self.rollout_ids.traces or trace_id in self.conversation_ids.traces

    def stated(self, place: Place) -> str | None:
        """Return the rollout id stated for a span or, if there is none, the conversation id."""
        return (
            self.of_whole_trace.get(place[0])
            or self.rollout_ids.of(place)
            or self.conversation_ids.of(place)
        )


def _of_whole_traces(rollout_ids: StatedIds, conversation_ids: StatedIds) -> dict[str, str]:
    """Return the rollout of each trace whose spans all state the same id.

    A rollout id comes before a conversation id.
    """
    unnamed = {
        one: name
        for one, name in conversation_ids.by_trace.items()
        if one not in rollout_ids.traces
    }
    return {**unnamed, **rollout_ids.by_trace}


def assign(  # noqa: PLR0913 - one argument for each reason to tie traces
    nodes: Nodes,
    rollout_ids: StatedIds,
    conversation_ids: StatedIds,
    calls: Sequence[LlmCall],
    evidence: Iterable[tuple[ToolCall | LlmCall, Sequence[LlmCall]]] = (),
    *,
    messages: Mapping[Place, Place] = MappingProxyType({}),
) -> Rollouts:
    """Find the rollout of every span, given the model calls that the spans record.

    Args:
        nodes: All spans of a closed set of traces: none of them is tied to a trace outside.
        rollout_ids: The rollout ids that they state.
        conversation_ids: The conversation ids that they state and that name a rollout.
        calls: Their model calls, after merging duplicates, in time order.
        evidence: Executions, and calls with the response of a tool, each with the calls that may
            have requested the tool in another trace (`tool_evidence.with_requesters`).
        messages: The spans of an agents' runtime, each with the span that wrote the message it
            handles (`runtime_messages.written_by`).

    Returns:
        The assignment. A rollout without a stated id gets the trace id of its first call.
    """
    stated = Rollouts(
        rollout_ids,
        conversation_ids,
        by_trace={},
        of_whole_trace=_of_whole_traces(rollout_ids, conversation_ids),
    )
    groups = _Groups(call.trace_id for call in calls)
    # In this order, since the first stated id that a group gets wins.
    for later, earlier in chain(
        _of_records(calls), _of_messages(messages, nodes), _of_continuations(calls, nodes, stated)
    ):
        _tie(groups, stated, later, earlier)
    # Last, because which rollout waited for a tool depends on the groups of its calls.
    for row, requester in _decided(evidence, calls, groups):
        _tie(groups, stated, (row.trace_id or "", row.span_id or ""), place_of(requester))
    by_trace = groups.names()
    whole = {one: name for one, name in by_trace.items() if not stated.states(one)}
    return replace(stated, by_trace=by_trace, of_whole_trace={**stated.of_whole_trace, **whole})


def _of_records(calls: Iterable[LlmCall]) -> Iterator[tuple[Place, Place]]:
    """Yield the records of merged calls with their calls: they may be in several traces."""
    for call in calls:
        if call.merged_places:
            yield from ((place, place_of(call)) for place in call.merged_places)


def _of_messages(messages: Mapping[Place, Place], nodes: Nodes) -> Iterator[tuple[Place, Place]]:
    """Yield the spans that handle messages of other traces, with the spans that wrote these.

    In time order: traces without calls are named after the first one that is joined.
    """
    for place in sorted(messages, key=lambda place: (nodes[place].start_ns or 0, place)):
        writer = messages[place]
        if place[0] != writer[0]:
            yield place, writer


def _of_continuations(
    calls: Sequence[LlmCall], nodes: Nodes, stated: Rollouts
) -> Iterator[tuple[Place, Place]]:
    """Yield the calls that continue others, with these.

    Stated ids win: where every call has one, it does not matter which call continues which.
    """
    unstated = [call for call in calls if call.trace_id not in stated.of_whole_trace]
    if not all(stated.stated(place_of(call)) for call in unstated):
        for later, earlier in continuations(calls, nodes):
            yield place_of(later), place_of(earlier)


def _decided(
    evidence: Iterable[tuple[ToolCall | LlmCall, Sequence[LlmCall]]],
    calls: Iterable[LlmCall],
    groups: "_Groups",
) -> list[tuple[ToolCall | LlmCall, LlmCall]]:
    """Return (row of the evidence, requesting call) where exactly one rollout waited for the tool.

    A rollout waits if it requested the tool and made no further call until the tool ran. If several
    rollouts wait, the request cannot be attributed and the evidence is left out.
    """
    rows = list(evidence)
    starts: dict[str, list[int]] = defaultdict(list)  # of the calls of each group of traces
    for call in calls if rows else ():
        starts[groups.root(call.trace_id)].append(call.latest_start_ns)
    for own in starts.values():
        own.sort()
    decided = []
    for row, requesters in rows:
        waiting = {}
        for call in requesters:
            root = groups.root(call.trace_id)
            # The rollout still waits if its next call starts after the tool, or if there is none.
            after = bisect_left(starts[root], call.end_ns or 0)
            if all(start >= (row.start_ns or 0) for start in starts[root][after : after + 1]):
                waiting[root] = call
        if len(waiting) == 1:
            decided += [(row, call) for call in waiting.values()]
    return decided


def _tie(groups: "_Groups", rollouts: Rollouts, later: Place, earlier: Place) -> None:
    """Put the traces of two spans into one rollout, unless both have stated ids: those win."""
    later_id, earlier_id = rollouts.stated(later), rollouts.stated(earlier)
    if later_id is None and earlier_id is None:
        groups.join(earlier[0], later[0])
    elif later_id is None:
        groups.name(later[0], str(earlier_id))
    elif earlier_id is None:
        groups.name(earlier[0], later_id)


class _Groups(Groups[str]):
    """Groups of traces that belong to one rollout."""

    def __init__(self, traces: Iterable[str]) -> None:
        super().__init__(traces)
        self._named: dict[str, str] = {}

    def name(self, trace_id: str, rollout_id: str) -> None:
        """Record that a trace belongs to a rollout with a stated id; the first record wins."""
        self._named.setdefault(trace_id, rollout_id)

    def names(self) -> dict[str, str]:
        """Return the rollout of each trace: its group's first stated id, or the root."""
        by_root: dict[str, str] = {}
        for trace_id, rollout_id in self._named.items():
            by_root.setdefault(self.root(trace_id), rollout_id)
        return {trace: by_root.get(self.root(trace), self.root(trace)) for trace in self}
