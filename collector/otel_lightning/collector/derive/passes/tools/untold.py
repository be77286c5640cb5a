"""Executions of which only the name is known, and which other rows tell of as well."""

from collections.abc import Iterable, Iterator

from otel_lightning.collector.derive.rows import Derived, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes

SENT_BY_MCP = "MCP send tools/call "
"""How the names begin of the spans in which a client of MCP's Python SDK calls a tool. The span of
FastMCP's client is above such a span, that of the server below it."""


def without_untold(tools: Iterable[ToolCall], derived: Derived, nodes: Nodes) -> Iterator[ToolCall]:
    """Yield the tools without those that MCP's Python SDK ran in rollouts without calls and agents.

    Its spans have the name of the tool and nothing else. Without a span around an agent, each is a
    trace of its own, and nothing tells which model call asked for it. The messages of the model
    calls tell of the same execution.

    Args:
        tools: The executions.
        derived: The model calls and agents, with their rollouts.
        nodes: All spans.
    """
    known = {row.rollout_id for rows in (derived.llm_calls, derived.agent_runs) for row in rows}
    found = list(tools)
    untold = {
        (tool.trace_id or "", tool.span_id or "")
        for tool in found
        if (tool.tool_call_id, tool.arguments, tool.result) == (None, None, None)
        and tool.rollout_id not in known
    }
    if untold:
        sent = {place for place, node in nodes.items() if (node.name or "").startswith(SENT_BY_MCP)}
        above = {nodes[place].parent for place in sent}
        untold = {place for place in untold if place in above or nodes[place].parent in sent}
    yield from (one for one in found if (one.trace_id or "", one.span_id or "") not in untold)
