"""Log records with the bodies of a request and its response, and the request that each belongs to.

Claude Code writes both while the span around its requests is current, so they name that span. The
response also names its request, as the request's own span does, and the body of the request.
Version 2.1.197 names no bodies: there it is the only one that waits for a response. Gateways and
other clouds than Anthropic's give requests no id: there the response ends when its span does.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from otel_lightning.collector.derive.rows import Log, Span

REQUEST = "request_id"
"""The provider's id of a request: an attribute of the request's span and of its response."""
BODY = "request_body_id"
"""The id of a request's body: an attribute of the records of the request and of its response."""
SENT, ANSWERED = "api_request_body", "api_response_body"
"""The names of the records whose attribute `body` is a whole request or response."""
NAMES = {SENT, ANSWERED}
SOURCES = ("session.id", "query_source")
"""The attributes that tell the requests of one source apart from all others."""

KIND, REQUESTED = "span.type", "llm_request"
"""The attribute of a span that tells a request, and its value."""
LATEST_NS = 1_000_000_000
"""A response's record is written at the end of its span, before or after it by less than this."""


class Bodies(NamedTuple):
    """The log records of each request."""

    by_request: Mapping[tuple[str, str], Sequence[Log]]
    """Log records of requests with an id, by trace and request id."""
    by_parent: Mapping[tuple[str, str], Sequence[Sequence[Log]]]
    """Log records of each other request, by trace and the span around the request."""

    def of(self, span: Span) -> Sequence[Log]:
        """Return the log records of a span's request."""
        if request_id := span.attributes.get(REQUEST):
            return self.by_request.get((span.trace_id, request_id), ())
        if not self.by_parent or span.attributes.get(KIND) != REQUESTED:
            return ()
        ended = span.end_ns or 0
        near = self.by_parent.get((span.trace_id, span.parent_span_id or ""), ())
        nearest = min(near, key=lambda logs: _distance(logs, ended), default=())
        return nearest if nearest and _distance(nearest, ended) < LATEST_NS else ()


def _distance(logs: Sequence[Log], ended: int) -> int:
    return abs((logs[-1].time_ns or 0) - ended)


def is_body(log: Log) -> bool:
    """Return whether a log record has the body of a request or a response.

    Only their names tell: other senders also write a `body` and its length.
    """
    return log.event_name in NAMES


def grouped(bodies: Iterable[Log]) -> Bodies:
    """Return the log records of each request.

    Args:
        bodies: Log records with bodies (see `is_body`), in their order.
    """
    sent: dict[tuple[str, str], Log] = {}
    answered: list[Log] = []
    waiting: dict[tuple[str | None, ...], list[Log]] = defaultdict(list)
    records: dict[tuple[str, str], list[Log]] = defaultdict(list)
    for log in bodies:
        trace_id, attributes = log.trace_id or "", log.attributes
        source = trace_id, *map(attributes.get, SOURCES)
        if not attributes.get(REQUEST):
            if BODY in attributes and log.event_name == ANSWERED:
                answered.append(log)
            elif BODY in attributes:
                sent[trace_id, attributes[BODY]] = log
            else:
                waiting[source].append(log)
        elif BODY in attributes:
            answered.append(log)
        else:
            # If several requests run at once, nothing tells which one the response answers.
            waiting_bodies = waiting.pop(source, [])
            records[trace_id, attributes[REQUEST]] += (
                [*waiting_bodies, log] if len(waiting_bodies) == 1 else [log]
            )
    by_parent: dict[tuple[str, str], list[list[Log]]] = defaultdict(list)
    for log in answered:
        trace_id = log.trace_id or ""
        own = sent.get((trace_id, log.attributes[BODY]))
        both = [log] if own is None else [own, log]
        if request_id := log.attributes.get(REQUEST):
            records[trace_id, request_id] += both
        else:
            by_parent[trace_id, log.span_id or ""].append(both)
    return Bodies(records, by_parent)
