"""The tree of spans: values that a span inherits from its ancestors.

Each function visits a span once and does not recurse: a trace may be ten thousand levels deep.
It may also lack its root, and a broken trace may contain a cycle of parents.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from otel_lightning.collector.derive.rows import Attributes, LlmCall, ToolCall

Value = TypeVar("Value")
Place = tuple[str, str]
"""(trace id, span id), which identifies a span."""


class Node(NamedTuple):
    """The fields that are kept of every span after it was read."""

    parent: Place
    """The parent span, which may not have been received."""
    name: str
    start_ns: int | None
    resource: Attributes


Nodes = Mapping[Place, Node]


def place_of(call: LlmCall) -> Place:
    """Return the trace id and span id of the call's span."""
    return call.trace_id, call.span_id


def place_of_tool(tool: ToolCall) -> Place:
    """Return the trace id and span id of the span of a tool; '' for one that it does not have."""
    return tool.trace_id or "", tool.span_id or ""


def inherited(
    nodes: Nodes, own: Mapping[Place, Value], wanted: Iterable[Place] | None = None
) -> dict[Place, Value]:
    """Return for each span its own value or, if it has none, that of its nearest ancestor with one.

    Args:
        nodes: The spans by place.
        own: The values that spans have themselves.
        wanted: The spans to look up; all spans by default.

    Returns:
        The values of these spans and of others, by place. A span without its own or an inherited
        value is missing.

    Example:
        A span `b` below `a`, which has the value 1, inherits it: `{a: 1, b: 1}`.
    """
    values: dict[Place, Value] = {}
    if not own:
        return values
    # Spans that were visited and have nothing to inherit. They end a walk, also one in a cycle.
    without: set[Place] = set()
    for start in nodes if wanted is None else wanted:
        path: list[Place] = []
        place = start
        while place not in values and place not in without:
            if place in own:
                values[place] = own[place]
                break
            node = nodes.get(place)
            if node is None:
                break
            # Before the result is known, so that a cycle of parents ends. A value found removes it
            # again.
            without.add(place)
            path.append(place)
            place = node.parent
        if path and place in values:
            values.update(dict.fromkeys(path, values[place]))
            without.difference_update(path)
    return values


def nearest_above(nodes: Nodes, members: Mapping[Place, object]) -> dict[Place, Place]:
    """Return for each member its nearest ancestor that is also a member, if it has one."""
    if members.keys().isdisjoint(_above(nodes, members)):  # as in most traces
        return {}
    parents = {place: nodes[place].parent for place in members}
    around = inherited(nodes, {place: place for place in members}, parents.values())
    above = ((place, around.get(parent)) for place, parent in parents.items())
    # In a cycle of parents a span may be its own ancestor.
    return {place: up for place, up in above if up is not None and up != place}


def _above(nodes: Nodes, members: Iterable[Place]) -> set[Place]:
    """Return all ancestors of the members."""
    ancestors: set[Place] = set()
    for start in {nodes[place].parent for place in members}:
        place = start
        while place not in ancestors and (node := nodes.get(place)) is not None:
            ancestors.add(place)
            place = node.parent
    return ancestors


def outermost(nodes: Nodes, members: Collection[Place]) -> dict[Place, Place]:
    """Return for each span the topmost member among the span itself and its ancestors."""
    tops: dict[Place, Place | None] = {}
    for start in nodes:
        path: list[Place] = []
        place = start
        while place in nodes and place not in tops:
            tops[place] = None  # a cycle of parents ends here
            path.append(place)
            place = nodes[place].parent
        top = tops.get(place)
        for place in reversed(path):
            top = top or (place if place in members else None)
            tops[place] = top
    return {place: top for place, top in tops.items() if top is not None}


def depths(above: Mapping[Place, Place], members: Mapping[Place, object]) -> dict[Place, int]:
    """Return the number of ancestors that are members, for each member.

    Args:
        above: The nearest member above each member, from `nearest_above`.
        members: The members.
    """
    known: dict[Place, int] = {}
    for start in members:
        path: list[Place] = []
        place: Place | None = start
        while place is not None and place not in known:
            known[place] = 0  # a cycle of parents ends here, and counts as the top
            path.append(place)
            place = above.get(place)
        depth = -1 if place is None else known[place]
        for place in reversed(path):
            depth += 1
            known[place] = depth
    return known
