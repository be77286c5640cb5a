"""The earlier call that each model call continues: its input begins with that call's history."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import Node, Nodes, Place, place_of

COMPARED = 64
"""Number of calls with one history, the latest first, that are compared with the one before a new
call. It limits the time for a first turn that many conversations share."""


class _Continuation(NamedTuple):
    """A call and the earlier call that it continues."""

    later: LlmCall
    earlier: LlmCall
    found_by: tuple[str, str] | None = None
    """Hash and scope by which the earlier call was found; None if it was named, or continued
    before."""
    rival: LlmCall | None = None
    """If answers are lost: another call with the same input that no call had continued by then."""


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

    def find(self, call: LlmCall, scopes: Iterable[str]) -> _Continuation | None:
        """Return the continuation of the call whose history a new call begins with, or None.

        A longer history wins over a shorter one, then a closer scope, then the latest call. Calls
        that nothing has continued yet are preferred to those that were continued already, and then
        those that asked for the same model.
        """
        # `prefixes` has the least exact hash first, then the shortest history; it is searched from
        # its end.
        keys = [[(prefix, scope) for scope in scopes] for prefix in call.history.prefixes]
        for key in (key for group in reversed(keys) for key in group):
            open_calls = self.waiting.get(key, [])
            while open_calls and place_of(open_calls[-1]) in self.continued:
                open_calls.pop()
            if open_calls:
                earlier = self._latest(call, open_calls)
                rival = self._rival(earlier, open_calls) if earlier.lost_answers else None
                return _Continuation(call, earlier, key, rival)
        # Every match is continued already: this call branches off a history, as a retry does.
        flat = (key for group in reversed(keys) for key in group)
        latest = next((self.latest[key] for key in flat if key in self.latest), None)
        return _Continuation(call, latest) if latest else None

    def _latest(self, call: LlmCall, open_calls: Sequence[LlmCall]) -> LlmCall:
        """Return the latest call that is not continued, of the same model if there is one."""
        latest = open_calls[-1]
        if len(open_calls) == 1 or latest.request_model == call.request_model:
            return latest
        return next(
            (
                one
                for one in reversed(open_calls[-COMPARED:])
                if one.request_model == call.request_model and place_of(one) not in self.continued
            ),
            latest,
        )

    def _rival(self, earlier: LlmCall, open_calls: Sequence[LlmCall]) -> LlmCall | None:
        """Return the latest call of another trace and the same model that is not continued."""
        others = (
            one
            for one in reversed(open_calls[-COMPARED:])
            if one.trace_id != earlier.trace_id and one.request_model == earlier.request_model
        )
        return next((one for one in others if place_of(one) not in self.continued), None)


def continuations(calls: Sequence[LlmCall], nodes: Nodes) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (call, earlier call) for each call that continues an earlier one.

    The earlier call must have ended before the later one started, in the same service; one whose
    end is recorded late (`late_end`) must have started before it. The starts and ends are visited
    once in time order, so the cost grows with the number of messages and not with the number of
    pairs of calls.

    Runs with the same messages at the same time cannot be told apart by them. They are continued in
    the order in which their calls ended. If their answers are lost, nothing continues these calls:
    an answer that the later call repeats would be given to either.
    """
    found = list(_found(calls, nodes))
    in_order, ambiguous = _in_order(found), _ambiguous(found)
    for one in found:
        if place_of(one.earlier) not in ambiguous:
            yield one.later, in_order.get(place_of(one.later), one.earlier)


def _found(calls: Sequence[LlmCall], nodes: Nodes) -> Iterator[_Continuation]:
    ended = _Earlier()
    started = _Earlier(continued=ended.continued)  # those with a late end
    for _, is_start, call, scopes in _moments(calls, nodes):
        if not is_start:
            ended.add(call, scopes)
            continue
        named = ended.by_response.get(_previous_response(call) or "")
        found = (
            (_Continuation(call, named) if named else None)
            or ended.find(call, scopes)
            or started.find(call, scopes)
        )
        if call.late_end:
            started.add(call, scopes)
        if found is not None:
            ended.continued.add(place_of(found.earlier))
            yield found


def _in_order(found: Iterable[_Continuation]) -> dict[Place, LlmCall]:
    """Return what each call continues if several calls of other traces had the same messages."""
    alike: dict[tuple[object, ...], list[_Continuation]] = defaultdict(list)
    for one in found:
        if one.found_by and one.later.trace_id != one.earlier.trace_id:
            alike[(*one.found_by, one.earlier.request_model)].append(one)
    in_order: dict[Place, LlmCall] = {}
    for several in alike.values():
        earlier = sorted((one.earlier for one in several), key=_known_end)
        in_order |= {
            place_of(one.later): other for one, other in zip(several, earlier, strict=True)
        }
    return in_order


def _ambiguous(found: Sequence[_Continuation]) -> set[Place]:
    """Return the calls without answers of runs at the same time with the same input.

    Two runs are at the same time if their calls overlap, or if each has a later call that starts
    after both. A call that nothing continues is the last one of a run that may have ended before.
    """
    rivals = [(one.earlier, one.rival) for one in found if one.rival]
    if not rivals:  # as in most batches
        return set()
    continued = {place_of(one.earlier) for one in found if one.found_by}
    return {
        place
        for earlier, rival in rivals
        if place_of(rival) in continued or _overlap(rival, earlier)
        for place in (place_of(earlier), place_of(rival))
    }


def _overlap(one: LlmCall, other: LlmCall) -> bool:
    if one.late_end or other.late_end:
        return False
    starts = one.latest_start_ns, other.latest_start_ns
    return max(starts) < min(one.end_ns or 0, other.end_ns or 0)


def _known_end(call: LlmCall) -> int:
    """Return the time from which on a call may be continued, in Unix nanoseconds."""
    return call.latest_start_ns if call.late_end else call.end_ns or 0


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


def _scopes(call: LlmCall, node: Node | None) -> list[str]:
    """Return the scopes in which to search the call that this one continues, closest first."""
    resource = node.resource if node else {}
    process = [resource.get(key, "") for key in ("service.instance.id", "host.name", "process.pid")]
    service = call.service_name or ""
    return [f"trace {call.trace_id}", f"process {service} {process}", f"service {service}"]
