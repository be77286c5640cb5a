"""The agent of a call in LangGraph that names no agent: the node in which the call was made.

A call of an agent that `create_agent` made has the node `model` inside that agent's graph. If the
agent has a name, the call states it; without one, the node in which the agent runs names it, if
there is such a node. LangChain's middleware has nodes of its own, such as
`SummarizationMiddleware.before_model`.
"""

from collections.abc import Mapping
from typing import Any

ASKING = {"model", "model_request"}
"""The nodes of LangChain's agents that ask the model, in Python and in JavaScript."""
TOOLS = "tools"
"""The node of LangChain's agents that runs tools; what a tool runs is not named after it."""
HOOKS = tuple(f".{when}_{what}" for when in ("before", "after") for what in ("agent", "model"))
"""Suffixes of the names of the nodes of LangChain's middleware."""
UNNAMED = "LangGraph"
"""The name of a graph that nobody named."""
ONLY_NODE = "agent"
"""The node of LangGraph's older agents that asks the model. Graphs of other people have it, too, so
it is the name where no node is around it."""


def agent(*stated: str | None) -> str | None:
    """Return the name of the node that stands for an agent, or None if there is none.

    Args:
        stated: A node, or the nodes of LangGraph's checkpoint namespace, the outermost first. The
            first that is not empty counts.

    Example:
        >>> agent("write:6f1a|model:9d58"), agent("model:9d58"), agent("", "plan")
        ('write', None, 'plan')
        >>> agent("lead:6f1a|agent:9d58"), agent("agent"), agent("tools:6f1a|model:9d58")
        ('lead', 'agent', None)
    """
    namespace = next(filter(None, stated), None) or ""
    found = None
    for inside in reversed(namespace.split("|")):
        node = inside.partition(":")[0]
        # A number counts the graphs that one node ran.
        if node in ASKING or node.endswith(HOOKS) or node.isdecimal():
            continue
        if node != ONLY_NODE:
            return found if node == TOOLS else node or found
        found = node
    return found


def is_function(name: str, metadata: Mapping[str, Any]) -> bool:
    """Return whether a run inside a graph is neither a node, nor a graph, nor a named agent.

    Such a run is a function that a node calls, or that chooses the next node, like the
    `route_to_active_agent` of LangGraph's swarms.

    Args:
        name: The name of the run.
        metadata: LangGraph's metadata of the run; {} outside of a graph.
    """
    if "langgraph_node" not in metadata:
        return False
    namespace = metadata.get("langgraph_checkpoint_ns")
    is_graph = namespace is not None and namespace == metadata.get("checkpoint_ns")
    return not is_graph and name not in (metadata["langgraph_node"], metadata.get("lc_agent_name"))
