"""Spans as a tree: what a span takes from the spans above it.

Everything here walks each span once, without recursion: a trace may be ten thousand levels deep,
lack its root, or hold a cycle where it is broken.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from otel_lightning.collector.derive.rows import Attributes, LlmCall

Value = TypeVar("Value")
Place = tuple[str, str]
"""A trace id and a span id: what names a span."""


class Node(NamedTuple):
    """What is kept of a span once it was read: where it stands, and the ids that it states."""

    trace_id: str
    parent: Place
    """The span above, which need not have been received."""
    name: str
    start_ns: int | None
    resource: Attributes
    rollout_id: str | None
    conversation_id: str | None
    task_id: str | None


Nodes = Mapping[Place, Node]


def place_of(call: LlmCall) -> Place:
    """Return what names the call's span."""
    return call.trace_id, call.span_id


def inherited(
    nodes: Nodes, own: Mapping[Place, Value], wanted: Iterable[Place] | None = None
) -> dict[Place, Value]:
    """Return for each span its own value, else that of its nearest ancestor that has one.

    Args:
        nodes: The spans by place.
        own: The values of some of them.
        wanted: The spans that are asked about, if not all.

    Example:
        A span `b` below `a`, which has the value 1, inherits it: `{a: 1, b: 1}`.
    """
    found = dict(own)
    if not own:
        return found
    without: set[Place] = set()
    for start in nodes if wanted is None else wanted:
        path: list[Place] = []
        place = start
        while place not in found and place not in without:
            node = nodes.get(place)
            if node is None:
                break
            without.add(place)
            path.append(place)
            place = node.parent
        if path and place in found:
            found.update(dict.fromkeys(path, found[place]))
            without.difference_update(path)
    return found


def nearest_above(nodes: Nodes, members: Mapping[Place, object]) -> dict[Place, Place]:
    """Return for each member the nearest other member above it, where there is one."""
    parents = {place: nodes[place].parent for place in members}
    around = inherited(nodes, {place: place for place in members}, parents.values())
    above = ((place, around.get(parent)) for place, parent in parents.items())
    return {place: up for place, up in above if up is not None and up != place}


def outermost(nodes: Nodes, members: Collection[Place]) -> dict[Place, Place]:
    """Return for each span the highest member above it, or the span itself if that is it."""
    found: dict[Place, Place | None] = {}
    for start in nodes:
        path: list[Place] = []
        place = start
        while place in nodes and place not in found:
            found[place] = None  # where a cycle comes back to
            path.append(place)
            place = nodes[place].parent
        top = found.get(place)
        for place in reversed(path):
            top = top or (place if place in members else None)
            found[place] = top
    return {place: top for place, top in found.items() if top is not None}


def depths(above: Mapping[Place, Place], members: Mapping[Place, object]) -> dict[Place, int]:
    """Return how many members are above each one, given the nearest above each."""
    found: dict[Place, int] = {}
    for start in members:
        path: list[Place] = []
        place: Place | None = start
        while place is not None and place not in found:
            found[place] = 0  # what a cycle comes back to counts as the top
            path.append(place)
            place = above.get(place)
        depth = -1 if place is None else found[place]
        for place in reversed(path):
            depth += 1
            found[place] = depth
    return found
