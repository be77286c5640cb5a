"""Drop spans of tools and agents inside another span of the same tool or agent: duplicates."""

from collections.abc import Iterable

from otel_lightning.collector.derive.messages.tool_parts import DENIED
from otel_lightning.collector.derive.rows import AgentRun, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, nearest_above, place_of_tool


def tools(executions: Iterable[ToolCall], nodes: Nodes) -> list[ToolCall]:
    """Drop a tool's span below another span of the same tool, or of the same tool call.

    Fields that only the inner span has are copied to the outer one. A span that tells that a tool
    was denied makes the tool's span around it denied.
    """
    by_place = {place_of_tool(tool): tool for tool in executions}
    above = nearest_above(nodes, by_place)
    outermost = []
    for place, tool in by_place.items():
        outer = by_place[above[place]] if place in above else None
        if outer is not None and tool.source == DENIED:
            outer.source = DENIED
            continue
        if outer is None or not _is_same(outer, tool):
            outermost.append(tool)
            continue
        for name in ("tool_call_id", "arguments", "result", "error_type"):
            if getattr(outer, name) is None:
                setattr(outer, name, getattr(tool, name))
    return outermost


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    have_one_id = one.tool_call_id is not None and one.tool_call_id == other.tool_call_id
    return have_one_id or one.name == other.name


def agents(runs: Iterable[AgentRun]) -> list[AgentRun]:
    """Drop an agent's span directly below another of the same agent: it is a duplicate."""
    by_place = {(run.trace_id, run.span_id): run for run in runs}
    outermost = []
    for run in by_place.values():
        outer = by_place.get((run.trace_id, run.parent_span_id or ""))
        if outer is None or (outer.name, outer.kind) != (run.name, run.kind):
            outermost.append(run)
    return outermost
