"""Parse each span by itself: which row it records, which ids it states, what it carries."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from otel_lightning.collector.derive import dialects, span_rows
from otel_lightning.collector.derive.attributes import spellings
from otel_lightning.collector.derive.attributes.compiled_fields import first
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.histories.lost_arguments import history
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.packing import pack
from otel_lightning.collector.derive.passes.answers import (
    answering_agents,
    request_bodies,
    requests_in_spans,
)
from otel_lightning.collector.derive.passes.inputs import late_inputs, outlined_inputs
from otel_lightning.collector.derive.passes.rollouts import runtime_messages
from otel_lightning.collector.derive.passes.rollouts.stated_ids import explicit_id
from otel_lightning.collector.derive.rewards import rewards_and_arms, vendor_rewards
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Arm,
    Attributes,
    LlmCall,
    Log,
    Reader,
    Retrieval,
    Reward,
    Span,
    ToolCall,
    described,
)
from otel_lightning.collector.derive.span_tree import Node, Place, place_of
from otel_lightning.instrumentation import attributes as names

SPANS_AT_ONCE = 256
"""Maximum number of spans that are taken through one step before the next."""
TEXT_AT_ONCE = 1_000_000
"""Threshold: number of characters of attributes above which no further span is taken with them.
This bounds memory."""
_NODE: Callable[[Any], Node] = partial(tuple.__new__, Node)
"""Makes a node of a tuple of all its fields, faster than `Node(…)`."""


_TRACE_ID: Callable[[Place], str] = itemgetter(0)
_ORDER: Callable[[Log], tuple[int, int, int]] = attrgetter("order")

BY_SPAN = ("nodes", "rollout_ids", "conversation_ids", "task_ids", "messages", "unread")
"""The fields of `ParsedRows` whose keys are spans."""
LISTS = ("calls", "tools", "requests", "agents", "retrievals", "arms")
"""The fields of `ParsedRows` that are lists of rows."""
MAPPINGS = (*BY_SPAN, "rewards", "sources")
"""The fields of `ParsedRows` that are mappings."""


@dataclass(slots=True)
class ParsedRows:
    """The rows of some traces, as parsed from each span and log record by itself."""

    nodes: dict[Place, Node] = field(default_factory=dict)
    rollout_ids: dict[Place, str] = field(default_factory=dict)
    """The rollout id that a span, or its resource, states."""
    conversation_ids: dict[Place, str] = field(default_factory=dict)
    """The conversation id that a span states."""
    task_ids: dict[Place, str] = field(default_factory=dict)
    """The task id that a span, or its resource, states."""
    messages: dict[Place, Place] = field(default_factory=dict)
    """The spans of an agents' runtime, each with the span that wrote the message it handles."""
    calls: list[LlmCall] = field(default_factory=list)
    tools: list[ToolCall] = field(default_factory=list)
    requests: list[ToolCall] = field(default_factory=list)
    """Tool calls that a model asked for and that were recorded as spans, though nothing ran in
    them, and pieces of a streamed answer, which have no name. `complete_calls` moves them into the
    calls that asked."""
    agents: list[AgentRun] = field(default_factory=list)
    retrievals: list[Retrieval] = field(default_factory=list)
    rewards: dict[str, Reward] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """The trace in which each reward was read, by reward id; it may judge another trace."""
    arms: list[Arm] = field(default_factory=list)
    unread: dict[Place, str] = field(default_factory=dict)
    """Why a span or log record could not be read, or only in part."""
    mixed: set[str] = field(default_factory=set)
    """The traces in which a span is read with log records that name another span."""
    memory: MessageMemory | None = None
    """The messages that these calls share with those read before."""

    def trace_ids(self) -> set[str]:
        """Return the ids of the traces."""
        return {*map(_TRACE_ID, self.nodes)}

    def spans_by_trace(self) -> Counter[str]:
        """Return the number of spans of each trace."""
        return Counter(map(_TRACE_ID, self.nodes))

    def add(self, *others: "ParsedRows") -> None:
        """Add the rows of other traces."""
        for name in LISTS:
            getattr(self, name).extend(chain.from_iterable(map(attrgetter(name), others)))
        for name in MAPPINGS:
            known = getattr(self, name)
            for more in filter(None, map(attrgetter(name), others)):
                known.update(more)
        self.mixed.update(*(other.mixed for other in others))


def read(
    spans: Iterable[Span], logs: Iterable[Log], memory: MessageMemory | None = None
) -> ParsedRows:
    """Read whole traces: each span, with the log records that name it, by itself.

    Args:
        spans: The spans; the `memory` of each is the one below, or None.
        logs: The log records that name these traces, and any without a trace.
        memory: Shares equal messages between calls.
    """
    parsed = ParsedRows(memory=memory)
    by_span: dict[Place, list[Log]] = defaultdict(list)
    bodies = []
    for log in logs:
        by_span[log.trace_id or "", log.span_id or ""].append(log)
        if request_bodies.is_body(log):
            bodies.append(log)
            parsed.mixed.add(log.trace_id or "")
        try:
            _add_rewards_and_arms(parsed, log.trace_id or "", rewards_and_arms.of_log(log))
        except Exception as error:  # noqa: BLE001 - one odd log record must not cost the others
            parsed.unread[log.trace_id or "", log.span_id or ""] = described(error)
    for own in (bodies, *by_span.values()):
        own.sort(key=_ORDER)
    stated = _StatedIds(parsed)
    requests = request_bodies.grouped(bodies)
    # Each step is done for several spans before the next one: by turns the steps take a tenth to a
    # fifth more CPU time.
    for some in _several(spans):
        recording = list(_recording(parsed, some, _LogsOf(by_span, requests), stated))
        _add_calls(parsed, list(_calls(parsed, recording)))
    return parsed


def _several(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Yield the spans in lists of up to `SPANS_AT_ONCE`, with about `TEXT_AT_ONCE` characters."""
    some: list[Span] = []
    size = 0
    for span in spans:
        some.append(span)
        size += sum(map(len, span.attributes.values()))
        if len(some) == SPANS_AT_ONCE or size > TEXT_AT_ONCE:
            yield some
            some, size = [], 0
    yield some


def _recording(
    parsed: ParsedRows, spans: list[Span], logs: "_LogsOf", stated: "_StatedIds"
) -> Iterator[tuple[Place, Span, Reader]]:
    """Add the node, ids, rewards and arms of each span; yield the spans that may record a row."""
    nodes = parsed.nodes
    for span in spans:
        place = span.trace_id, span.span_id
        # A span that was delivered twice: its first row counts.
        if place in nodes:
            continue
        own = logs.of(span, place) if logs.are_any else ()
        with_logs = span._replace(logs=own) if own else span
        plan = shape_of(span.attributes).plan(_Plan)
        # Before all that may fail: a span that cannot be read still connects the spans below it.
        nodes[place] = _NODE((
            (span.trace_id, span.parent_span_id or ""),
            span.name,
            span.start_ns,
            span.resource,
        ))  # fmt: skip
        stated.add(span, place, plan)
        if plan.is_message and (writer := runtime_messages.written_by(span)):
            parsed.messages[place] = writer
        try:
            # Only these spans can carry a reward or an arm, so all others are not searched.
            if span.events or span.name == rewards_and_arms.ANNOTATION:
                _add_rewards_and_arms(parsed, span.trace_id, rewards_and_arms.of_span(with_logs))
            for rewards in plan.rewards:
                _add_rewards_and_arms(parsed, span.trace_id, rewards(with_logs))
            if (reader := plan.decision.of(with_logs)) is not None:
                yield place, with_logs, reader
        except Exception as error:  # noqa: BLE001 - one odd span must not cost the others
            parsed.unread[place] = described(error)


def _calls(
    parsed: ParsedRows, recording: Iterable[tuple[Place, Span, Reader]]
) -> Iterator[LlmCall]:
    """Read the rows of spans; yield the model calls and add all other rows."""
    for place, span, reader in recording:
        try:
            if (row := reader(span)) is None:
                continue
            if isinstance(row, ToolCall) and span_rows.is_interrupted(span):
                continue
            if cleared := dialects.make_fit(row):
                parsed.unread[place] = cleared
            if isinstance(row, LlmCall):
                yield row
            else:
                _add_row(parsed, row)
        except Exception as error:  # noqa: BLE001 - likewise
            parsed.unread[place] = described(error)


def _add_calls(parsed: ParsedRows, calls: Iterable[LlmCall]) -> None:
    """Add model calls with their histories."""
    for call in calls:
        try:
            call.history = history(call, parsed.memory)
            parsed.calls.append(call)
            # Packed messages are JSON text, which needs less memory. Calls with tool parts are read
            # again when tools are joined, so their messages are not packed.
            if not call.history.has_tools:
                pack(call)
        except Exception as error:  # noqa: BLE001 - likewise
            parsed.unread[place_of(call)] = described(error)


def complete_calls(parsed: ParsedRows) -> None:
    """Complete the calls of whole traces by what their other spans say.

    - Agents whose span is the only record of an answer become calls, all others runs.
    - Tool calls that were recorded as spans are added to the output of the requesting call.
    - Inputs that were recorded in outline are completed; those that were written late are ended.

    The calls are changed in place, and their histories are computed again, so this comes before
    anything that compares histories.
    """
    parsed.calls, runs = answering_agents.part(parsed.calls, parsed.tools, parsed.nodes)
    parsed.agents += runs
    with_requests = requests_in_spans.add(parsed.calls, parsed.requests, parsed.tools, parsed.nodes)
    from_outlines = outlined_inputs.complete(parsed.calls, parsed.nodes, parsed.tools)
    for call in (*with_requests, *from_outlines, *late_inputs.cut(parsed.calls)):
        call.history = history(call, parsed.memory)
    parsed.requests = []


class _LogsOf:
    """The log records that each span is read with."""

    def __init__(
        self,
        by_span: Mapping[Place, list[Log]],
        bodies: request_bodies.Bodies,
    ) -> None:
        self.are_any = bool(by_span)
        self._by_span, self._bodies = by_span, bodies

    def of(self, span: Span, place: Place) -> tuple[Log, ...]:
        """Return the log records that name a span, and the bodies of the request that it is of."""
        return (*self._by_span.get(place, ()), *self._bodies.of(span))


class _Plan:
    """The readers of the spans of a shape and of their rewards, and the ids that they may state."""

    __slots__ = (
        "conversation",
        "decision",
        "is_message",
        "rewards",
        "states_conversation",
        "states_ids",
        "states_rollout",
        "states_task",
    )

    def __init__(self, shape: Shape) -> None:
        known = shape.known
        self.decision = shape.plan(dialects.decision)
        self.states_rollout = names.ROLLOUT_ID in known
        conversation = spellings.conversation(known)
        self.states_conversation = not known.isdisjoint(conversation)
        self.conversation = first(shape, conversation)
        self.states_task = names.TASK_ID in known
        self.states_ids = self.states_rollout or self.states_conversation or self.states_task
        self.is_message = runtime_messages.OPERATION in known
        self.rewards = vendor_rewards.readers(shape)


class _StatedIds:
    """Reads the ids that spans state. The ids that a resource states are read once per resource."""

    def __init__(self, parsed: ParsedRows) -> None:
        self._parsed = parsed
        self._of_resource: dict[int, tuple[Attributes, str | None, str | None]] = {}

    def add(self, span: Span, place: Place, plan: _Plan) -> None:
        """Note the ids that a span states."""
        resource = span.resource
        ids_of_resource = self._of_resource.get(id(resource)) or self._read(resource)
        _, rollout_id, task_id = ids_of_resource
        if not (plan.states_ids or rollout_id or task_id):
            return
        parsed, attributes = self._parsed, span.attributes
        if plan.states_rollout:
            rollout_id = attributes[names.ROLLOUT_ID] or rollout_id
        if rollout_id:
            parsed.rollout_ids[place] = rollout_id
        conversation_id = plan.conversation(attributes) if plan.states_conversation else None
        if conversation_id and conversation_id != spellings.NO_ID:
            parsed.conversation_ids[place] = conversation_id
        if plan.states_task:
            task_id = attributes[names.TASK_ID] or task_id
        if task_id:
            parsed.task_ids[place] = task_id

    def _read(self, resource: Attributes) -> tuple[Attributes, str | None, str | None]:
        rollout, task = explicit_id({}, resource), resource.get(names.TASK_ID) or None
        # The resource is kept as well: while it lives, no other object has its `id()`.
        ids = self._of_resource[id(resource)] = resource, rollout, task
        return ids


def _add_rewards_and_arms(
    parsed: ParsedRows, trace_id: str, carried: Iterable[Reward | Arm]
) -> None:
    for row in carried:
        if isinstance(row, Arm):
            parsed.arms.append(row)
        else:
            if row.trace_id and row.trace_id != trace_id:
                # A reward belongs to its carrier's trace: with that it is derived and deleted.
                row.placed_trace_id, row.placed_span_id = row.trace_id, row.span_id
                row.trace_id, row.span_id = trace_id, None
            parsed.rewards[row.reward_id] = row
            parsed.sources[row.reward_id] = trace_id


def _add_row(parsed: ParsedRows, row: ToolCall | AgentRun | Retrieval) -> None:
    if isinstance(row, AgentRun):
        parsed.agents.append(row)
    elif isinstance(row, Retrieval):
        parsed.retrievals.append(row)
    else:
        # AgentOps writes a span `tool_call.NAME` for each request: it is no execution.
        (parsed.requests if row.source == "request" else parsed.tools).append(row)
