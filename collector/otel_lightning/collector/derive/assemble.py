"""Spans and logs to canonical rows: model calls, tool executions, agent runs, rewards, arms.

Pure: the same closed set of traces gives the same rows, in the same order, however it arrived.
`parse` reads each span by itself and lets its attributes go; `links` finds what ties traces to each
other; this module puts together what the spans of a closed set say.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.attributes import graph_nodes
from otel_lightning.collector.derive.histories import lost_arguments
from otel_lightning.collector.derive.histories.lost_arguments import history
from otel_lightning.collector.derive.histories.state import ToolTexts, state_hash
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.messages.tool_parts import DENIED
from otel_lightning.collector.derive.parse import ParsedRows, complete_calls, read
from otel_lightning.collector.derive.passes import retrievals
from otel_lightning.collector.derive.passes.answers import (
    finish_reasons,
    inner_agents,
    unanswered_calls,
)
from otel_lightning.collector.derive.passes.duplicates import outermost
from otel_lightning.collector.derive.passes.duplicates.merge import Merged, merge_calls
from otel_lightning.collector.derive.passes.inputs import (
    earlier_turns,
    failed_inputs,
    incremental_inputs,
    lost_items,
    replaced_values,
    unasked_results,
)
from otel_lightning.collector.derive.passes.rollouts import conversations
from otel_lightning.collector.derive.passes.rollouts.assign import Rollouts, assign
from otel_lightning.collector.derive.passes.rollouts.stated_ids import stated_ids
from otel_lightning.collector.derive.passes.tools import lone_executions, tool_evidence, tool_ids
from otel_lightning.collector.derive.passes.tools.executions import join_tools
from otel_lightning.collector.derive.rewards import rewards_and_arms
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Arm,
    Derived,
    LlmCall,
    Log,
    Reward,
    Span,
    ToolCall,
)
from otel_lightning.collector.derive.span_tree import Nodes, Place, inherited, place_of_tool

EMBEDS = "embeddings"
CONVERSES = {"chat", "generate_content"}
"""The operations that an agent's tools are offered to."""


def derive(spans: Iterable[Span], logs: Iterable[Log]) -> Derived:
    """Return all canonical rows of a closed set of traces.

    Args:
        spans: Every span of the traces. None of them may be tied to a trace outside; `links.ties`
            says which traces are tied.
        logs: The log records that name these traces, and any without a trace.

    Returns:
        The rows, in an order that depends on their times and ids alone.
    """
    memory = MessageMemory()
    parsed = read((span._replace(memory=memory) for span in spans), logs, memory)
    complete_calls(parsed)
    derived = assemble_rows(parsed)
    for call in derived.llm_calls:
        unpack(call)
    return derived


def assemble_rows(parsed: ParsedRows) -> Derived:
    """Return the rows of a closed set of traces that were read.

    Args:
        parsed: The parsed rows; the requests that were spans are in their calls (`complete_calls`).
            Its rows are completed in place and become those of the answer.
    """
    # First of all, because a conversation id names a rollout: a response id in its place would make
    # each call a rollout.
    conversation_ids = conversations.read_previous(
        parsed.calls, parsed.conversation_ids, parsed.nodes
    )
    callers = _agents_and_tools(parsed)
    merged, ordered = _merged_calls(parsed, callers)
    # The rollout of each span.
    evidence = [*_evidence(parsed, merged.calls)]
    rollout_ids = stated_ids(parsed.nodes, parsed.rollout_ids)
    conversation_rollouts = stated_ids(
        parsed.nodes, conversations.of_rollouts(parsed.nodes, conversation_ids, callers)
    )
    assigned = assign(
        parsed.nodes,
        rollout_ids,
        conversation_rollouts,
        ordered,
        evidence,
        messages=parsed.messages,
    )
    # The rows, with their rollouts.
    derived = Derived(unread=dict(sorted(parsed.unread.items())))
    derived.agent_runs = _agent_runs([*parsed.agents, *merged.aggregates], assigned)
    derived.llm_calls = _numbered(ordered, assigned)
    _inherit(derived, parsed.nodes, conversation_ids)
    inner_agents.rename(derived.llm_calls, parsed.nodes)
    # After `_inherit`, because tools that an agent's span states are part of the state, too.
    _set_state_hashes(derived.llm_calls)
    rollouts_with_tools = {call.rollout_id for call in derived.llm_calls if call.history.has_tools}
    # Also their calls without tool parts, since `read_requests` looks at the previous call.
    calls = [call for call in derived.llm_calls if call.rollout_id in rollouts_with_tools]
    tools = _tool_calls(parsed, calls, parsed.nodes, assigned)
    tools = lone_executions.without_unattributed(tools, evidence, derived)
    derived.tool_calls = lone_executions.without_lone(tools, derived, parsed.nodes)
    derived.retrievals = retrievals.place(parsed.retrievals, derived.llm_calls, assigned)
    _place_rewards_and_arms(derived, parsed, assigned)
    _add_tasks(derived, parsed, assigned)
    return derived


def _evidence(
    parsed: ParsedRows, calls: Iterable[LlmCall]
) -> Iterator[tuple[ToolCall | LlmCall, list[LlmCall]]]:
    """Yield evidence that a tool ran for a call of another trace, and the calls it may be."""
    # Only a call with tool parts can have requested a tool or have a response in its input.
    with_tools = [call for call in calls if call.history.has_tools]
    evidence = tool_evidence.find_evidence(parsed.tools, with_tools, parsed.nodes)
    return tool_evidence.with_requesters(evidence, with_tools)


def _set_state_hashes(calls: Iterable[LlmCall]) -> None:
    tool_texts = ToolTexts()
    for call in calls:
        offered = tool_texts.of(call.tool_definitions)
        call.state_hash = state_hash(call.prompt_token_ids, call.history.input_hash, offered)


def _merged_calls(parsed: ParsedRows, callers: Collection[Place]) -> tuple[Merged, list[LlmCall]]:
    """Return the calls without duplicates, with what other calls reveal of them.

    Returns:
        The merged records, and their calls in time order.
    """
    ordered = sorted(parsed.calls, key=time_order.of_call)
    merged = merge_calls(ordered, parsed.nodes, callers)
    # With as many calls as before, nothing was merged and the order is the same.
    if len(merged.calls) != len(ordered):
        ordered = sorted(merged.calls, key=time_order.of_call)
    # This may set a previous response, whose turns the next line adds.
    earlier_turns.infer_previous(ordered)
    completed = [
        *earlier_turns.add(ordered),
        *incremental_inputs.join(ordered),
        *unasked_results.fill(ordered),
        *failed_inputs.fill(ordered, parsed.agents, parsed.nodes),
    ]
    # The messages of these calls changed, so their hashes are computed again.
    for call in (*completed, *(c for c in ordered if c.merged_span_ids)):
        call.history = history(call, parsed.memory)
    lost_items.mark(ordered)
    conversations.mark_held(ordered)
    unanswered_calls.fail(ordered, parsed.agents, parsed.nodes)
    finish_reasons.settle(ordered, parsed.tools, parsed.nodes)
    for call in ordered:
        call.output_messages = call.output_messages or None
        # Reading each span did this for its own output; merging may have added the tool calls.
        if call.finish_reason == "stop" and call.history.tool_call_ids:
            call.finish_reason = "tool_calls"
        # An answer may lack the tool calls that its reason states. Merging may have added them.
        are_lost = call.finish_reason == "tool_calls" and not call.history.tool_call_ids
        if call.content == "full" and (are_lost or replaced_values.has_any(call)):
            call.content = "truncated"
    return merged, ordered


def _agents_and_tools(parsed: ParsedRows) -> set[Place]:
    """Return the spans inside which something runs on behalf of a caller.

    A workflow's span may hold several tasks, unless it has a conversation of its own.
    """
    agents = (run for run in parsed.agents if run.kind != "workflow" or run.conversation_id)
    tool_spans = {place_of_tool(tool) for tool in parsed.tools}
    return tool_spans | {(run.trace_id, run.span_id) for run in agents}


def _agent_runs(runs: Iterable[AgentRun], assigned: Rollouts) -> list[AgentRun]:
    distinct = outermost.agents(sorted(runs, key=time_order.of_run))
    for run in distinct:
        run.rollout_id = assigned.of(run.trace_id, run.span_id)
    return distinct


def _numbered(calls: Iterable[LlmCall], assigned: Rollouts) -> list[LlmCall]:
    """Give each call, in time order, its rollout and its step in it.

    An embedding decides nothing: it is no step, and embeddings alone are no rollout.
    """
    steps: dict[str, int] = defaultdict(int)
    ordered = list(calls)
    for call in ordered:
        call.rollout_id = assigned.of(call.trace_id, call.span_id)
        if call.operation != EMBEDS:
            call.step = steps[call.rollout_id]
            steps[call.rollout_id] += 1
    for call in ordered:
        if call.step is None and call.rollout_id not in steps:
            call.rollout_id = None
    return ordered


def _inherit(derived: Derived, nodes: Nodes, conversation_ids: Mapping[Place, str]) -> None:
    """Fill in the agent, conversation and tools that only a span around a call states."""
    agents = [run for run in derived.agent_runs if run.kind == "agent"]
    named = {
        (run.trace_id, run.span_id): run.name
        for run in agents
        if run.name and run.name != graph_nodes.UNNAMED
    }
    offered = {(run.trace_id, run.span_id): run.tool_definitions or [] for run in agents}
    # From the parent, because that of a merged call is the parent of its outermost record.
    above_calls = [(call.trace_id, call.parent_span_id or "") for call in derived.llm_calls]
    names_around = inherited(nodes, named, above_calls)
    offered = _undisclosed(derived.llm_calls, nodes, offered, above_calls)
    tools_around = inherited(nodes, offered, above_calls)
    conversations_around = inherited(nodes, conversation_ids, above_calls)
    for call, above in zip(derived.llm_calls, above_calls, strict=True):
        call.agent_name = call.agent_name or names_around.get(above)
        call.conversation_id = call.conversation_id or conversations_around.get(above)
        if call.tool_definitions is None:
            if call.operation in CONVERSES:
                call.tool_definitions = tools_around.get(above)
        elif not call.tool_definitions:
            call.tool_definitions = None


def _undisclosed(
    calls: Iterable[LlmCall],
    nodes: Nodes,
    offered: Mapping[Place, list[Any]],
    above_calls: Collection[Place],
) -> dict[Place, list[Any]]:
    """Return the tools of the agents that have no call which states its tools itself.

    If some calls of an agent state tools, its other calls were offered none.
    """
    if not any(offered.values()):
        return {}
    around = inherited(nodes, {place: place for place in offered}, above_calls)
    disclosing = {
        around.get((call.trace_id, call.parent_span_id or ""))
        for call in calls
        if call.tool_definitions
    }
    return {place: tools for place, tools in offered.items() if tools and place not in disclosing}


def _tool_calls(
    parsed: ParsedRows, calls: Iterable[LlmCall], nodes: Nodes, assigned: Rollouts
) -> list[ToolCall]:
    executions: dict[str, list[ToolCall]] = defaultdict(list)
    for tool in outermost.tools(sorted(parsed.tools, key=time_order.of_tool), nodes):
        executions[assigned.of(tool.trace_id or "", tool.span_id)].append(tool)
    calls_of: dict[str, list[LlmCall]] = defaultdict(list)
    for call in calls:
        calls_of[call.rollout_id or ""].append(call)
    rows = []
    for rollout_id in sorted({*executions, *calls_of}):
        own = executions[rollout_id]
        if own_calls := calls_of.get(rollout_id):
            tool_ids.unify(own_calls)
            lost_arguments.recall(own_calls)
            own = join_tools(own, own_calls)
        ran = [tool for tool in own if tool.source != DENIED]
        for tool in ran:
            tool.rollout_id = rollout_id
        rows += ran
    return rows


def _place_rewards_and_arms(derived: Derived, parsed: ParsedRows, assigned: Rollouts) -> None:
    """Give each reward and arm the rollout of its carrier, unless it states one itself.

    A conversation that is no rollout, such as a sub-agent's, does not count as stated. A reward for
    a whole trace whose spans state rollouts gets none here, nor one for another trace than its
    carrier's: `place_rewards.sql` in `refresh/rollouts/sql` finds the rollout of what it judges.
    """
    names = {call.rollout_id for call in derived.llm_calls}
    only_conversations = {*parsed.conversation_ids.values()} - names
    derived.rewards = sorted(parsed.rewards.values(), key=time_order.of_reward)
    derived.arms = rewards_and_arms.distinct(parsed.arms)
    traces = parsed.trace_ids()
    rows: list[Reward | Arm] = [*derived.rewards, *derived.arms]
    for row in rows:
        if row.rollout_id in only_conversations and row.trace_id in traces:
            row.rollout_id = None
        whole = isinstance(row, Reward) and row.span_id is None
        is_linked = isinstance(row, Reward) and row.placed_trace_id is not None
        is_later = is_linked or (whole and assigned.states(row.trace_id or ""))
        if row.rollout_id is None and row.trace_id in traces and not is_later:
            row.rollout_id = assigned.of(row.trace_id or "", row.span_id)


def _add_tasks(derived: Derived, parsed: ParsedRows, assigned: Rollouts) -> None:
    """Set the task of each rollout: the first that a span states or, without one, a reward."""
    stated = ((parsed.nodes[at].start_ns or 0, at, task) for at, task in parsed.task_ids.items())
    for _, place, task_id in sorted(stated):
        if (rollout_id := assigned.of(*place)) not in derived.tasks:
            derived.tasks[rollout_id] = task_id
            derived.tasks_stated_by[rollout_id] = place[0]
    for reward in derived.rewards:
        if reward.task_id and reward.rollout_id and reward.rollout_id not in derived.tasks:
            derived.tasks[reward.rollout_id] = reward.task_id
            derived.tasks_stated_by[reward.rollout_id] = parsed.sources[reward.reward_id]
