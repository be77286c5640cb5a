"""Log records with the bodies of a request and its response, and the request that each belongs to.

Claude Code writes both while the span around its requests is current, so they name that span. The
response also names its request, as the request's own span does, and the body of the request.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from otel_lightning.collector.derive.rows import Log

REQUEST = "request_id"
"""The provider's id of a request: an attribute of the request's span and of its response."""
BODY = "request_body_id"
"""The id of a request's body: an attribute of the records of the request and of its response."""


def by_request(bodies: Iterable[Log]) -> Mapping[tuple[str, str], list[Log]]:
    """Return the log records of each request, by trace and request id.

    Args:
        bodies: Log records with the attribute `BODY`.
    """
    sent: dict[tuple[str, str], Log] = {}
    answered: list[Log] = []
    for log in bodies:
        if log.attributes.get(REQUEST):
            answered.append(log)
        else:
            sent[log.trace_id or "", log.attributes[BODY]] = log
    found: dict[tuple[str, str], list[Log]] = defaultdict(list)
    for log in answered:
        trace_id = log.trace_id or ""
        own = sent.get((trace_id, log.attributes[BODY]))
        found[trace_id, log.attributes[REQUEST]] += [log] if own is None else [own, log]
    return found
