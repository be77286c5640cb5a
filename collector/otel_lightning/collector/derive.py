"""Spans and logs to canonical rows: model calls, tool executions, agent runs, rewards, arms.

Pure: the same closed set of traces gives the same rows, in the same order, however it arrived.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from otel_lightning.collector import dialects, duplicates, rollouts, signals, stitch, tools
from otel_lightning.collector.reading import text
from otel_lightning.collector.records import (
    AgentRun,
    Arm,
    Derived,
    LlmCall,
    Log,
    Reward,
    Span,
    ToolCall,
)
from otel_lightning.collector.rollouts import Place, Rollouts, lineage
from otel_lightning.instrumentation import attributes as names

Spans = Mapping[Place, Span]


@dataclass(slots=True)
class _Read:
    """What the dialect readers found in the spans, by kind."""

    calls: list[LlmCall] = field(default_factory=list)
    tools: list[ToolCall] = field(default_factory=list)
    requests: list[ToolCall] = field(default_factory=list)
    agents: list[AgentRun] = field(default_factory=list)
    unread: dict[Place, str] = field(default_factory=dict)


def derive(spans: Iterable[Span], logs: Iterable[Log]) -> Derived:
    """Return all canonical rows of a closed set of traces.

    Args:
        spans: Every span of the traces. None of them may be tied to a trace outside; `trace_keys`
            says which traces are tied.
        logs: The log records that name these traces, and any without a trace. Records of one span
            at one instant stay in the order given: nothing else tells theirs.

    Returns:
        The rows, in an order that depends on their times and ids alone.
    """
    records = list(logs)
    known = join_logs(spans, records)
    read = _read_spans(known)
    merged = _merged_calls(read, known)
    assigned = rollouts.assign(known.values(), merged.calls)
    derived = Derived(unread=read.unread)
    derived.agent_runs = _agent_runs([*read.agents, *merged.aggregates], assigned)
    derived.llm_calls = _numbered(merged.calls, assigned)
    _name_agents(derived, known)
    derived.tool_calls = _tool_calls(read.tools, derived.llm_calls, known, assigned)
    _add_signals(derived, known, records, assigned)
    return derived


def join_logs(spans: Iterable[Span], logs: Iterable[Log]) -> dict[Place, Span]:
    """Return the spans by place, in a stable order, each once and with the logs that name it."""
    by_span: dict[Place, list[Log]] = defaultdict(list)
    for log in logs:
        if log.trace_id and log.span_id:
            by_span[log.trace_id, log.span_id].append(log)
    known = {}
    for span in sorted(spans, key=lambda span: (span.start_ns or 0, span.trace_id, span.span_id)):
        place = (span.trace_id, span.span_id)
        own = tuple(by_span.get(place, ()))
        known[place] = replace(span, logs=own) if own else span
    return known


def trace_keys(spans: Iterable[Span], logs: Iterable[Log]) -> set[str]:
    """Return the keys that tie a trace to others: two traces that may belong together share one.

    Args:
        spans: The spans of one trace.
        logs: The log records that name the trace.

    Returns:
        Keys prefixed by their kind: `rollout:`, `conversation:`, `response:` and `history:`.
    """
    known = join_logs(spans, logs)
    read = _read_spans(known)
    duplicates.add_requests(read.calls, read.requests)
    keys = set[str]()
    for span in known.values():
        keys |= _keys("rollout", rollouts.explicit_id(span))
        keys |= _keys("conversation", rollouts.conversation_id(span))
    for call in (*read.calls, *duplicates.merge_calls(read.calls, known).calls):
        past = rollouts.history(call)
        keys |= _keys("history", *past.begins, *past.ends)
        keys |= _keys("response", call.response_id, call.request_params.get("previous_response_id"))
    return keys


def _keys(kind: str, *values: object) -> set[str]:
    return {f"{kind}:{value}" for value in values if value}


def _read_spans(known: Spans) -> _Read:
    read = _Read()
    for place, span in known.items():
        try:
            _file(read, dialects.read(span))
        except Exception as error:  # noqa: BLE001 - one odd span must not cost the others
            read.unread[place] = f"{type(error).__name__}: {error}"
    return read


def _file(read: _Read, row: LlmCall | ToolCall | AgentRun | None) -> None:
    match row:
        case LlmCall():
            read.calls.append(row)
        case ToolCall(source="request"):
            read.requests.append(row)
        case ToolCall():
            read.tools.append(row)
        case AgentRun():
            read.agents.append(row)


def _merged_calls(read: _Read, known: Spans) -> duplicates.Merged:
    duplicates.add_requests(read.calls, read.requests)
    merged = duplicates.merge_calls(read.calls, known)
    ordered = sorted(merged.calls, key=rollouts.order)
    stitch.add_earlier_turns(ordered)
    stitch.settle_stops(ordered, read.tools, known)
    for call in merged.calls:
        asks = any(p["type"] == "tool_call" for m in call.output_messages or [] for p in m["parts"])
        if call.finish_reason == "stop" and asks:
            call.finish_reason = "tool_calls"
    return merged


def _agent_runs(runs: Iterable[AgentRun], assigned: Rollouts) -> list[AgentRun]:
    kept = duplicates.outermost_agents(runs)
    for run in kept:
        run.rollout_id = assigned.of(run.trace_id, run.span_id)
    return sorted(kept, key=lambda run: (run.start_ns or 0, run.trace_id, run.span_id))


def _numbered(calls: Iterable[LlmCall], assigned: Rollouts) -> list[LlmCall]:
    """Give each call its rollout and its place in it."""
    steps: dict[str, int] = defaultdict(int)
    ordered = sorted(calls, key=rollouts.order)
    for call in ordered:
        call.rollout_id = assigned.of(call.trace_id, call.span_id)
        call.step = steps[call.rollout_id]
        steps[call.rollout_id] += 1
    return ordered


def _name_agents(derived: Derived, known: Spans) -> None:
    """Name the agent of each call that does not name its own: the nearest one running around it."""
    named = {
        (run.trace_id, run.span_id): run.name for run in derived.agent_runs if run.kind == "agent"
    }
    for call in derived.llm_calls:
        around = lineage((call.trace_id, call.parent_span_id or ""), known)
        nearest = (named[place] for place in around if named.get(place))
        call.agent_name = call.agent_name or next(nearest, None)


def _tool_calls(
    executions: Iterable[ToolCall], calls: Iterable[LlmCall], known: Spans, assigned: Rollouts
) -> list[ToolCall]:
    ran: dict[str, list[ToolCall]] = defaultdict(list)
    for tool in duplicates.outermost_tools(executions, known):
        ran[assigned.of(tool.trace_id or "", tool.span_id)].append(tool)
    asked: dict[str, list[LlmCall]] = defaultdict(list)
    for call in calls:
        asked[call.rollout_id or ""].append(call)
    rows = []
    for rollout_id in sorted({*ran, *asked}):
        stitch.meet_ids(asked[rollout_id])
        for tool in tools.join_tools(ran[rollout_id], asked[rollout_id]):
            tool.rollout_id = rollout_id
            rows.append(tool)
    return rows


def _add_signals(derived: Derived, known: Spans, logs: list[Log], assigned: Rollouts) -> None:
    """Add rewards, arms and tasks, each with the rollout that the place of its carrier gives."""
    events = list(signals.carried(known.values(), logs))
    derived.rewards = signals.rewards(events, known.values())
    derived.arms = signals.arms(events)
    traces = {trace_id for trace_id, _ in known}
    rows: list[Reward | Arm] = [*derived.rewards, *derived.arms]
    for row in rows:
        if row.rollout_id is None and row.trace_id in traces:
            row.rollout_id = assigned.of(row.trace_id, row.span_id)
    for (trace_id, span_id), span in known.items():
        task = text(span.attributes, names.TASK_ID) or text(span.resource, names.TASK_ID)
        if task:
            derived.tasks.setdefault(assigned.of(trace_id, span_id), task)
    for reward in derived.rewards:
        if reward.task_id and reward.rollout_id:
            derived.tasks.setdefault(reward.rollout_id, reward.task_id)
