"""Assign each span to a rollout.

The rollout id is the first of these that exists: a rollout id on the span, a rollout id on its
resource, a conversation id, the rollout of the call that this one continues (its input begins with
the earlier call's input and output), the trace id. Calls of one trace without a stated id stay in
one rollout.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from otel_lightning.collector.derive.attributes import reading, spellings
from otel_lightning.collector.derive.rows import Attributes, LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import Node, Nodes, Place, inherited, place_of
from otel_lightning.collector.derive.union_find import Groups
from otel_lightning.instrumentation.attributes import ROLLOUT_ID


def explicit_id(attributes: Attributes, resource: Attributes) -> str | None:
    """Return the rollout id that a span states or, if it states none, that of its resource."""
    return attributes.get(ROLLOUT_ID) or reading.text(resource, *spellings.ROLLOUT)


@dataclass(frozen=True, slots=True)
class StatedIds:
    """The stated id of each span: its own, its nearest ancestor's, or the only one in its trace."""

    by_trace: Mapping[str, str]
    """Trace id to stated id, for traces in which all stated ids are equal."""
    by_span: Mapping[Place, str]
    """Span to stated id, for traces with several different stated ids."""
    traces: Collection[str]
    """Ids of all traces in which at least one span states an id."""

    def of(self, place: Place) -> str | None:
        """Return the stated id of a span, or None."""
        return self.by_trace.get(place[0]) or self.by_span.get(place)


def stated_ids(nodes: Nodes, own: Mapping[Place, str]) -> StatedIds:
    """Find the stated id of each span, with inheritance from ancestors.

    Args:
        nodes: All spans of the traces.
        own: The ids that spans state themselves, by span.
    """
    in_trace: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), stated in own.items():
        in_trace[trace_id].add(stated)
    # With one id in a trace, every span has it, also a span that is not below the one that states
    # it.
    alone = {trace_id: next(iter(ids)) for trace_id, ids in in_trace.items() if len(ids) == 1}
    several = {place: stated for place, stated in own.items() if place[0] not in alone}
    return StatedIds(alone, inherited(nodes, several), in_trace.keys())


@dataclass(slots=True)
class _Earlier:
    """Earlier calls, indexed by (hash of their history, scope)."""

    waiting: dict[tuple[str, str], list[LlmCall]] = field(default_factory=lambda: defaultdict(list))
    latest: dict[tuple[str, str], LlmCall] = field(default_factory=dict)
    by_response: dict[str, LlmCall] = field(default_factory=dict)
    continued: set[Place] = field(default_factory=set)

    def add(self, call: LlmCall, scopes: Iterable[str]) -> None:
        for scope in scopes:
            for whole in call.history.with_answer:
                self.waiting[whole, scope].append(call)
                self.latest[whole, scope] = call
        if call.response_id:
            self.by_response[call.response_id] = call

    def find(self, prefixes: Iterable[str], scopes: Iterable[str]) -> LlmCall | None:
        """Return the call that a new call continues, or None.

        A longer history wins over a shorter one, then a closer scope, then the latest call. Calls
        that nothing has continued yet are preferred to those that were continued already.
        """
        # `prefixes` has the least exact hash first, then the shortest history; it is searched from
        # its end.
        keys = [[(prefix, scope) for scope in scopes] for prefix in prefixes]
        for key in (key for group in reversed(keys) for key in group):
            open_calls = self.waiting.get(key, [])
            while open_calls and place_of(open_calls[-1]) in self.continued:
                open_calls.pop()
            if open_calls:
                return open_calls[-1]
        # Every match is continued already: this call branches off a history, as a retry does.
        flat = (key for group in reversed(keys) for key in group)
        return next((self.latest[key] for key in flat if key in self.latest), None)


def continuations(calls: Sequence[LlmCall], nodes: Nodes) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (call, earlier call) for each call that continues an earlier one.

    The earlier call must have ended before the later one started, in the same service; one whose
    end is recorded late (`late_end`) must have started before it. The starts and ends are visited
    once in time order, so the cost grows with the number of messages and not with the number of
    pairs of calls.
    """
    ended = _Earlier()
    started = _Earlier(continued=ended.continued)  # those with a late end
    for _, is_start, call, scopes in _moments(calls, nodes):
        if not is_start:
            ended.add(call, scopes)
            continue
        earlier = (
            ended.by_response.get(_previous_response(call) or "")
            or ended.find(call.history.prefixes, scopes)
            or started.find(call.history.prefixes, scopes)
        )
        if call.late_end:
            started.add(call, scopes)
        if earlier is not None:
            ended.continued.add(place_of(earlier))
            yield call, earlier


def _previous_response(call: LlmCall) -> str | None:
    stated = call.request_params.get("previous_response_id")
    return str(stated) if stated else None


def _moments(
    calls: Sequence[LlmCall], nodes: Nodes
) -> list[tuple[int, bool, LlmCall, Sequence[str]]]:
    """Return (time, is start, call, scopes) in time order; at equal times ends come first.

    Only calls that may continue another or be continued count: one begins as another ends, or names
    its response.
    """
    shared = {one for call in calls for one in call.history.with_answer}
    shared &= {one for call in calls for one in call.history.prefixes}
    named = {_previous_response(call) for call in calls} - {None}
    moments = []
    for call in calls:
        may_continue = _previous_response(call) or not shared.isdisjoint(call.history.prefixes)
        may_be_continued = call.response_id in named or not shared.isdisjoint(
            call.history.with_answer
        )
        if not (may_continue or may_be_continued):
            continue
        scopes = _scopes(call, nodes.get(place_of(call)))
        if call.start_ns is not None and (may_continue or call.late_end):
            moments.append((call.latest_start_ns, True, call, scopes))
        if call.end_ns is not None and may_be_continued:
            moments.append((call.end_ns, False, call, scopes))
    return sorted(moments, key=lambda moment: moment[:2])


def order(call: LlmCall) -> tuple[int, int, str, str]:
    """Return the sort key of calls in a rollout: by time, then by id."""
    return call.start_ns or 0, call.end_ns or 0, call.trace_id, call.span_id


def _scopes(call: LlmCall, node: Node | None) -> list[str]:
    """Return the scopes in which to search the call that this one continues, closest first."""
    resource = node.resource if node else {}
    process = [resource.get(key, "") for key in ("service.instance.id", "host.name", "process.pid")]
    service = call.service_name or ""
    return [f"trace {call.trace_id}", f"process {service} {process}", f"service {service}"]


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollout of every span and trace of a closed set (no trace outside is tied to it)."""

    named: StatedIds
    """Stated rollout ids."""
    conversations: StatedIds
    """Stated conversation ids."""
    by_trace: Mapping[str, str]
    """Trace id to rollout id, for spans without a stated id."""
    alone: Mapping[str, str]
    """Trace id to rollout id, for traces whose spans all have the same one."""

    def of(self, trace_id: str, span_id: str | None) -> str:
        """Return the rollout of a span or, if the span is unknown, of its trace."""
        if alone := self.alone.get(trace_id):
            return alone
        return self.stated((trace_id, span_id or "")) or self.by_trace.get(trace_id, trace_id)

    def states(self, trace_id: str) -> bool:
        """Tell whether any span of a trace states its rollout or conversation."""
        return trace_id in self.named.traces or trace_id in self.conversations.traces

    def stated(self, place: Place) -> str | None:
        """Return the rollout id stated for a span or, if there is none, the conversation id."""
        return self.alone.get(place[0]) or self.named.of(place) or self.conversations.of(place)


def _alone(named: StatedIds, conversations: StatedIds) -> dict[str, str]:
    """Return the traces in which each span states the same, as rollout or else as conversation."""
    unnamed = {one: name for one, name in conversations.by_trace.items() if one not in named.traces}
    return {**unnamed, **named.by_trace}


def assign(
    nodes: Nodes,
    named: StatedIds,
    conversations: StatedIds,
    calls: Sequence[LlmCall],
    evidence: Iterable[tuple[ToolCall | LlmCall, Sequence[LlmCall]]] = (),
) -> Rollouts:
    """Find the rollout of every span, given the model calls that the spans record.

    Args:
        nodes: All spans of a closed set of traces: none of them is tied to a trace outside.
        named: The rollout ids that they state.
        conversations: The conversation ids that they state and that name a rollout.
        calls: Their model calls, after merging duplicates, in time order.
        evidence: Executions, and calls with the response of a tool, each with the calls that may
            have requested the tool in another trace (`tool_evidence.with_requesters`).

    Returns:
        The assignment. A rollout without a stated id gets the trace id of its first call.
    """
    stated = Rollouts(named, conversations, by_trace={}, alone=_alone(named, conversations))
    groups = _Groups(call.trace_id for call in calls)
    # The records of a merged call may be in several traces, which belong together then.
    for call in [one for one in calls if one.merged_places]:
        for place in call.merged_places:
            _tie(groups, stated, place, place_of(call))
    # Stated ids win: where every call has one, it does not matter which call continues which.
    unstated = [call for call in calls if call.trace_id not in stated.alone]
    if not all(stated.stated(place_of(call)) for call in unstated):
        for later, earlier in continuations(calls, nodes):
            _tie(groups, stated, place_of(later), place_of(earlier))
    for row, requester in _decided(evidence, calls, groups):
        _tie(groups, stated, (row.trace_id or "", row.span_id or ""), place_of(requester))
    by_trace = groups.names()
    whole = {one: name for one, name in by_trace.items() if not stated.states(one)}
    return replace(stated, by_trace=by_trace, alone={**stated.alone, **whole})


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
