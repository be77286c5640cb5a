"""Rollout and conversation ids that spans state, with inheritance from the spans around them."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from otel_lightning.collector.derive.attributes import reading, spellings
from otel_lightning.collector.derive.rows import Attributes
from otel_lightning.collector.derive.span_tree import Nodes, Place, inherited
from otel_lightning.instrumentation.attributes import ROLLOUT_ID


def explicit_id(attributes: Attributes, resource: Attributes) -> str | None:
    """Return the rollout id that a span states or, if it states none, that of its resource."""
    return attributes.get(ROLLOUT_ID) or reading.text(resource, *spellings.ROLLOUT)


@dataclass(frozen=True, slots=True)
class StatedIds:
    """The stated id of each span: its own, its nearest ancestor's, or the only one in its trace."""

    by_trace: Mapping[str, str]
    """Trace id to stated id, for traces in which all stated ids are equal."""
    by_span: Mapping[Place, str]
    """Span to stated id, for traces with several different stated ids."""
    traces: Collection[str]
    """Ids of all traces in which at least one span states an id."""

    def of(self, place: Place) -> str | None:
        """Return the stated id of a span, or None."""
        return self.by_trace.get(place[0]) or self.by_span.get(place)


def stated_ids(nodes: Nodes, own: Mapping[Place, str]) -> StatedIds:
    """Find the stated id of each span, with inheritance from ancestors.

    Args:
        nodes: All spans of the traces.
        own: The ids that spans state themselves, by span.
    """
    in_trace: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), stated in own.items():
        in_trace[trace_id].add(stated)
    # With one id in a trace, every span has it, also a span that is not below the one that states
    # it.
    alone = {trace_id: next(iter(ids)) for trace_id, ids in in_trace.items() if len(ids) == 1}
    several = {place: stated for place, stated in own.items() if place[0] not in alone}
    return StatedIds(alone, inherited(nodes, several), in_trace.keys())
