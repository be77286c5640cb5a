"""Executions of which only the name is known, and which other rows tell of as well."""

from collections.abc import Iterable, Iterator

from otel_lightning.collector.derive.rows import Derived, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes

SENT_BY_MCP = "MCP send tools/call "
"""How the names begin of the spans in which a client of MCP's Python SDK calls a tool."""


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
    for tool in tools:
        is_told = (tool.tool_call_id, tool.arguments, tool.result) != (None, None, None)
        if is_told or tool.rollout_id in known or not _is_of_mcp(tool, nodes):
            yield tool


def _is_of_mcp(tool: ToolCall, nodes: Nodes) -> bool:
    own = nodes.get((tool.trace_id or "", tool.span_id or ""))
    above = nodes.get(own.parent) if own else None
    return above is not None and (above.name or "").startswith(SENT_BY_MCP)
