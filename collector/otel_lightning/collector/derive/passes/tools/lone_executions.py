"""Executions that were recorded outside of any agent, and that messages tell as well."""

from collections.abc import Iterable, Sequence

from otel_lightning.collector.derive.passes.tools.waiting_requests import canonical
from otel_lightning.collector.derive.rows import Derived, LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, place_of_tool

SENT_BY_MCP = "MCP send tools/call "
"""Prefix of the names of the spans in which a client of MCP's Python SDK calls a tool. The span of
FastMCP's client is above such a span, that of the server below it."""


def without_lone(tools: Iterable[ToolCall], derived: Derived, nodes: Nodes) -> list[ToolCall]:
    """Return the tools but those that MCP's Python SDK ran in rollouts without calls and agents.

    Its spans have the name of the tool and nothing else. Without a span around an agent, each is a
    trace of its own, and nothing says which model call asked for it. The messages of the model
    calls have the same execution, so such a span would be a duplicate.

    Args:
        tools: The executions.
        derived: The model calls and agents, with their rollouts.
        nodes: All spans.
    """
    found = list(tools)
    bare = [
        one for one in found if (one.tool_call_id, one.arguments, one.result) == (None, None, None)
    ]
    if not bare:  # as in most batches
        return found
    known = _rollouts_of_agents(derived)
    lone = {
        place
        for one in bare
        if one.rollout_id not in known and (place := place_of_tool(one)) in nodes
    }
    if lone:
        sent = {place for place, node in nodes.items() if (node.name or "").startswith(SENT_BY_MCP)}
        above = {nodes[place].parent for place in sent}
        lone = {place for place in lone if place in above or nodes[place].parent in sent}
    return [one for one in found if place_of_tool(one) not in lone]


def without_unattributed(
    tools: Sequence[ToolCall],
    evidence: Iterable[tuple[ToolCall | LlmCall, Sequence[LlmCall]]],
    derived: Derived,
) -> list[ToolCall]:
    """Drop the executions in traces of their own that several runs may have asked for.

    Nothing says which of the runs such an execution belongs to. The messages of these runs record
    it already, so it would be counted twice.

    Args:
        tools: The executions, with their rollouts.
        evidence: Executions that a call of another trace may have asked for, with these calls
            (`tool_evidence.with_requesters`).
        derived: The model calls and agents, with their rollouts.
    """
    rivals = [
        (row, calls)
        for row, calls in evidence
        if isinstance(row, ToolCall) and len({call.rollout_id for call in calls}) > 1
    ]
    if not rivals:  # as in most batches
        return [*tools]
    known = _rollouts_of_agents(derived)
    told = {
        (tool.rollout_id, key)
        for tool in tools
        if tool.source == "messages"
        for key in (tool.tool_call_id, _named(tool))
    }
    dropped = {
        place_of_tool(row)
        for row, calls in rivals
        if row.rollout_id not in known
        and any((call.rollout_id, row.tool_call_id or _named(row)) in told for call in calls)
    }
    return [tool for tool in tools if place_of_tool(tool) not in dropped]


def _rollouts_of_agents(derived: Derived) -> set[str | None]:
    """Return the rollouts with a model call or an agent."""
    return {row.rollout_id for rows in (derived.llm_calls, derived.agent_runs) for row in rows}


def _named(tool: ToolCall) -> tuple[str | None, bytes]:
    return tool.name, canonical(tool.arguments)
