"""Agents whose span is the only record of a model's answer.

Azure's client for agents of a project asks the service, which asks the model: its span
`invoke_agent` states the response's id, its tokens and its messages, and nothing is below it. The
spans of other agents may state them too, beside the model calls below them.
"""

from collections.abc import Iterable, Sequence

from otel_lightning.collector.derive.rows import AgentRun, LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import (
    Nodes,
    Place,
    inherited,
    place_of,
    place_of_tool,
)

INVOKED = "invoke_agent"
"""The operation of an agent's span. A span that states the id of a response is read as a call."""


def part(
    calls: Sequence[LlmCall], tools: Iterable[ToolCall], nodes: Nodes
) -> tuple[list[LlmCall], list[AgentRun]]:
    """Tell the agents that ran model calls or tools of their own from those that are model calls.

    Args:
        calls: All calls, with the agents' spans that state a response; changed in place.
        tools: The executions of tools.
        nodes: All spans.

    Returns:
        The model calls, and the agents that ran some.
    """
    agents = {place_of(call): call for call in calls if call.operation == INVOKED}
    if not agents:
        return [*calls], []
    inside = [place_of(call) for call in calls]
    inside += [place_of_tool(tool) for tool in tools]
    parents = [nodes[place].parent for place in inside if place in nodes]
    around: dict[Place, Place] = inherited(nodes, {place: place for place in agents}, parents)
    ran = {around[parent] for parent in parents if parent in around}
    for place in agents.keys() - ran:
        agents[place].operation = "chat"
    runs = [_run(agents[place], nodes[place].name) for place in agents if place in ran]
    return [call for call in calls if place_of(call) not in ran], runs


def _run(call: LlmCall, name: str) -> AgentRun:
    return AgentRun(
        trace_id=call.trace_id,
        span_id=call.span_id,
        name=call.agent_name or name,
        kind="agent",
        parent_span_id=call.parent_span_id,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        conversation_id=call.conversation_id,
        tool_definitions=call.tool_definitions,
        error=(call.error_type, call.error_message),
    )
