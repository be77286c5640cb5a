"""Which calls belong to one rollout, and in which order.

Identity is the first that is there: a rollout id on the span, else on its resource; a conversation
id; message containment (a call whose input begins with an earlier call's input and output continues
it); the trace. The calls of one trace without an id of their own stay together.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_lightning.collector import reading
from otel_lightning.collector.records import LlmCall, Message, Span
from otel_lightning.instrumentation.attributes import ROLLOUT_ID

RESOURCE_IDS = (ROLLOUT_ID, "agentlightning.rollout_id")

Place = tuple[str, str]
"""A trace id and a span id: what names a span."""


def explicit_id(span: Span) -> str | None:
    """Return the rollout id that the span, else its resource, states."""
    own = reading.text(span.attributes, ROLLOUT_ID)
    return own or reading.text(span.resource, *RESOURCE_IDS)


def conversation_id(span: Span) -> str | None:
    """Return the conversation id that the span states."""
    return reading.conversation_id(span.attributes)


def stated_ids(spans: Iterable[Span], state: Callable[[Span], str | None]) -> dict[Place, str]:
    """Return an id for each span: its own, its nearest ancestor's, or the only one of its trace.

    Args:
        spans: All spans of the traces.
        state: What reads a span's own id.
    """
    known = {(span.trace_id, span.span_id): span for span in spans}
    own = {place: state(span) for place, span in known.items()}
    in_trace: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), stated in own.items():
        if stated:
            in_trace[trace_id].add(stated)
    above: dict[Place, str | None] = {}
    found: dict[Place, str] = {}
    for place in known:
        stated = _inherited(place, known, own, above)
        alone = in_trace[place[0]]
        if stated or len(alone) == 1:
            found[place] = stated or next(iter(alone))
    return found


def _inherited(
    place: Place,
    known: Mapping[Place, Span],
    own: Mapping[Place, str | None],
    above: dict[Place, str | None],
) -> str | None:
    """Return the id that a span or its nearest ancestor states; `above` remembers the way up."""
    path = []
    stated = None
    for up in lineage(place, known):
        stated = own[up] or above.get(up)
        path.append(up)
        if stated or up in above:
            break
    above.update(dict.fromkeys(path, stated))
    return stated


def lineage(place: Place, known: Mapping[Place, Span]) -> Iterator[Place]:
    """Yield the span and its ancestors, nearest first. A broken trace may hold a cycle: it ends."""
    seen: set[Place] = set()
    while place in known and place not in seen:
        yield place
        seen.add(place)
        place = (place[0], known[place].parent_span_id or "")


class History(NamedTuple):
    """A call's message history as hashes."""

    begins: list[str]
    """Of each beginning of the input that ends with the assistant's turn, the shortest first."""
    ends: list[str]
    """Of the input with each choice of the output."""


def history(call: LlmCall) -> History:
    """Hash a call's messages so that equal histories have equal hashes, in one pass.

    Reasoning is left out, because providers do not send it back, and so are the spelling of
    arguments and how a turn was cut into messages. An outline without text says who spoke and not
    what: it identifies a history only from the first tool call id on.
    """
    chain = _Chain()
    begins = [digest for message in call.input_messages or [] for digest in chain.add(message)]
    if chain.role == "assistant":
        begins.append(chain.digest())
    choices = (call.output_messages or []) if call.input_messages else []
    ends = [chain.copy().after(choice) for choice in choices]
    if call.content == "redacted" and not _names_tools(call):
        return History([], [])
    return History(begins, ends)


def _names_tools(call: LlmCall) -> bool:
    turns = [*(call.input_messages or []), *(call.output_messages or [])]
    return any(part.get("id") for turn in turns for part in turn["parts"])


class _Chain:
    """A running hash over messages, by turns: neighbouring assistant messages are one."""

    def __init__(self) -> None:
        self.role: str | None = None
        self._hash = hashlib.sha256()

    def copy(self) -> "_Chain":
        twin = _Chain()
        twin.role = self.role
        twin._hash = self._hash.copy()
        return twin

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]

    def add(self, message: Message) -> list[str]:
        """Add a message; return the hash of the assistant's turn that it closes, if it does."""
        role = message["role"]
        closed = [self.digest()] if self.role == "assistant" and role != "assistant" else []
        if role != "assistant" or self.role != "assistant":
            self._hash.update(f"\0{role}\0".encode())
        for part in message["parts"]:
            if part["type"] != "reasoning":
                self._hash.update(_spelled(part))
        self.role = role
        return closed

    def after(self, message: Message) -> str:
        self.add(message)
        return self.digest()


def _spelled(part: Mapping[str, object]) -> bytes:
    kept = {key: value for key, value in part.items() if key != "arguments_raw"}
    return json.dumps(kept, sort_keys=True, default=str).encode()


@dataclass(slots=True)
class _Ended:
    """The calls that ended so far, to be found by the history they left."""

    waiting: dict[tuple[str, str], list[LlmCall]] = field(default_factory=lambda: defaultdict(list))
    latest: dict[tuple[str, str], LlmCall] = field(default_factory=dict)
    by_response: dict[str, LlmCall] = field(default_factory=dict)
    continued: set[Place] = field(default_factory=set)

    def add(self, call: LlmCall, ends: Iterable[str], scopes: Iterable[str]) -> None:
        for scope in scopes:
            for end in ends:
                self.waiting[end, scope].append(call)
                self.latest[end, scope] = call
        if call.response_id:
            self.by_response[call.response_id] = call

    def find(self, begins: Iterable[str], scopes: Iterable[str]) -> LlmCall | None:
        """Return the call to continue: the longest history, the closest scope, the most recent."""
        keys = [[(begin, scope) for scope in scopes] for begin in begins]
        for key in (key for group in reversed(keys) for key in group):
            open_calls = self.waiting.get(key, [])
            while open_calls and place_of(open_calls[-1]) in self.continued:
                open_calls.pop()
            if open_calls:
                return open_calls[-1]
        flat = (key for group in reversed(keys) for key in group)
        return next((self.latest[key] for key in flat if key in self.latest), None)


def place_of(call: LlmCall) -> Place:
    """Return what names the call's span."""
    return call.trace_id, call.span_id


def continuations(
    calls: Iterable[LlmCall], spans: Mapping[Place, Span]
) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield each call that continues an earlier one, with that one.

    The earlier call must have ended before the later started, in the same service. Time is swept
    once, so the cost grows with the number of messages and not with that of pairs.
    """
    ended = _Ended()
    for _, starts, call, past in _moments(calls):
        scopes = _scopes(call, spans.get(place_of(call)))
        if not starts:
            ended.add(call, past.ends, scopes)
            continue
        response = call.request_params.get("previous_response_id")
        earlier = ended.by_response.get(str(response)) or ended.find(past.begins, scopes)
        if earlier is not None:
            ended.continued.add(place_of(earlier))
            yield call, earlier


def _moments(calls: Iterable[LlmCall]) -> list[tuple[int, bool, LlmCall, History]]:
    """Return the ends and starts of calls in time order; at one moment ends come first."""
    moments = []
    for call in sorted(calls, key=order):
        past = history(call)
        if call.start_ns is not None:
            moments.append((call.start_ns, True, call, past))
        if call.end_ns is not None:
            moments.append((call.end_ns, False, call, past))
    return sorted(moments, key=lambda moment: moment[:2])


def order(call: LlmCall) -> tuple[int, int, str, str]:
    """Return the sort key of calls in a rollout: by time, then by id."""
    return call.start_ns or 0, call.end_ns or 0, call.trace_id, call.span_id


def _scopes(call: LlmCall, span: Span | None) -> list[str]:
    """Return where to look for the call that this one continues, the closest first."""
    resource = span.resource if span else {}
    process = [resource.get(key, "") for key in ("service.instance.id", "host.name", "process.pid")]
    service = call.service_name or ""
    return [f"trace {call.trace_id}", f"process {service} {process}", f"service {service}"]


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollout of every span and trace of a closed set."""

    stated: Mapping[Place, str]
    by_trace: Mapping[str, str]

    def of(self, trace_id: str, span_id: str | None) -> str:
        """Return the rollout that a span, or any part of a trace, belongs to."""
        stated = self.stated.get((trace_id, span_id or ""))
        return stated or self.by_trace.get(trace_id, trace_id)


def assign(spans: Iterable[Span], calls: Iterable[LlmCall]) -> Rollouts:
    """Find the rollout of every span, given the model calls that the spans record.

    Args:
        spans: All spans of a closed set of traces: none is tied to a trace outside.
        calls: Their model calls, duplicates merged.

    Returns:
        The assignment. A rollout found by containment is named by its first call's trace.
    """
    known = {(span.trace_id, span.span_id): span for span in spans}
    stated = {
        **stated_ids(known.values(), conversation_id),
        **stated_ids(known.values(), explicit_id),
    }
    ordered = sorted(calls, key=order)
    groups = _Groups()
    for call in ordered:
        groups.add(call.trace_id)
        for trace_id in _traces(call, known):
            groups.join(call.trace_id, trace_id)
    for later, earlier in continuations(ordered, known):
        _tie(groups, stated, later, earlier)
    return Rollouts(stated, groups.names())


def _traces(call: LlmCall, known: Mapping[Place, Span]) -> Iterator[str]:
    """Yield the other traces that recorded the same call."""
    wanted = set(call.merged_span_ids)
    if wanted:
        yield from sorted({trace for trace, span_id in known if span_id in wanted})


def _tie(groups: "_Groups", stated: Mapping[Place, str], later: LlmCall, earlier: LlmCall) -> None:
    ids = stated.get(place_of(later)), stated.get(place_of(earlier))
    if ids == (None, None):
        groups.join(earlier.trace_id, later.trace_id)
    elif ids[0] is None:
        groups.name(later.trace_id, str(ids[1]))
    elif ids[1] is None:
        groups.name(earlier.trace_id, ids[0])


class _Groups:
    """Traces tied into rollouts: a union-find whose root is the trace seen first."""

    def __init__(self) -> None:
        self._up: dict[str, str] = {}
        self._rank: dict[str, int] = {}
        self._named: dict[str, str] = {}

    def add(self, trace_id: str) -> None:
        self._rank.setdefault(trace_id, len(self._rank))
        self._up.setdefault(trace_id, trace_id)

    def root(self, trace_id: str) -> str:
        self.add(trace_id)
        while self._up[trace_id] != trace_id:
            self._up[trace_id] = self._up[self._up[trace_id]]
            trace_id = self._up[trace_id]
        return trace_id

    def join(self, one: str, other: str) -> None:
        first, second = sorted((self.root(one), self.root(other)), key=self._rank.__getitem__)
        self._up[second] = first

    def name(self, trace_id: str, rollout_id: str) -> None:
        """Record that a trace continues, or is continued by, a rollout with a stated id."""
        self._named.setdefault(trace_id, rollout_id)

    def names(self) -> dict[str, str]:
        """Return the rollout of each trace: the id stated first in its group, else the root."""
        by_root: dict[str, str] = {}
        for trace_id, rollout_id in self._named.items():
            by_root.setdefault(self.root(trace_id), rollout_id)
        return {trace: by_root.get(self.root(trace), self.root(trace)) for trace in self._up}
