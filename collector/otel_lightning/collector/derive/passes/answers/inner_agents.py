"""Correct the agent of LangChain's calls that state the name of an outer agent.

LangChain gives the name of an agent to its calls as metadata. A tool that invokes another agent
with its own configuration hands on the outer agent's name, which then replaces the inner one's. The
spans around the call still tell which agent made it: the span of an agent is named after it, and
below it is that of the node which asks the model.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from otel_lightning.collector.derive.attributes import graph_nodes
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import Nodes, Place

MOST_BETWEEN = 4
"""Maximum number of spans above a call that are searched for the span of its node."""
UNNAMED = (graph_nodes.UNNAMED, "Runnable")
"""Prefixes of the names of graphs and sequences that have no names of their own."""
BEFORE = ("execute_task ", "invoke_agent ", "invoke_workflow ")
"""Prefixes that packages put before the name of a node or an agent."""
AFTER = ".workflow"
"""Suffix that packages put behind it."""
ENDS = tuple(f"{name}{after}" for name in graph_nodes.ASKING for after in ("", AFTER))
"""Suffixes of the names of the spans of these nodes."""


def rename(calls: Iterable[LlmCall], nodes: Nodes) -> None:
    """Give each call the name of the nearest agent, if it states the name of an outer one.

    Args:
        calls: The model calls; changed in place.
        nodes: All spans.
    """
    if not any((node.name or "").endswith(ENDS) for node in nodes.values()):  # as in most batches
        return
    for call in calls:
        if call.agent_name and call.parent_span_id:
            above = _names_above((call.trace_id, call.parent_span_id), nodes)
            asking = next(
                (name for name in islice(above, MOST_BETWEEN) if name in graph_nodes.ASKING), None
            )
            # `above` goes on after the node: the agent comes next, then what is around it.
            agent = next(above, None) if asking else None
            is_named = agent not in (None, call.agent_name) and not agent.startswith(UNNAMED)
            if is_named and call.agent_name in above:
                call.agent_name = agent


def _names_above(place: Place, nodes: Nodes) -> Iterator[str]:
    """Yield the names of a span and of the spans above it, as far as they are known."""
    seen = set[Place]()
    while (node := nodes.get(place)) is not None and place not in seen:
        seen.add(place)
        name = node.name or ""
        for prefix in BEFORE:
            name = name.removeprefix(prefix)
        yield name.removesuffix(AFTER)
        place = node.parent
