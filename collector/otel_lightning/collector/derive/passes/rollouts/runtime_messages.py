"""Messages between the agents of one team, in AutoGen's runtime.

Each message that an agent's runtime sends begins a trace of its own, whose spans link to the span
that wrote the message. So one run of a team is some two dozen traces, and the agents' calls are in
several of them.
"""

from collections.abc import Iterator, Mapping

from otel_lightning.collector.derive.rows import Span
from otel_lightning.collector.derive.span_tree import Place

OPERATION = "messaging.operation"
"""The key that every span of the runtime has."""
SCOPES = "autogen "
"""Prefix of the scopes of AutoGen's runtimes; their names follow."""
KIND = "message:"
"""Prefix of the keys of traces that such messages tie."""


def written_by(span: Span) -> Place | None:
    """Return the span that wrote the message which a span of the runtime handles.

    Args:
        span: A span that has `OPERATION`.

    Returns:
        The span itself, if it handles no message of another trace. None if it is not the runtime's.
    """
    if not (span.scope_name or "").startswith(SCOPES):
        return None
    return next(iter(span.links), (span.trace_id, span.span_id))


def keys(messages: Mapping[Place, Place]) -> Iterator[tuple[str, str]]:
    """Yield (trace id, key) for the traces that messages tie: to themselves and to their writer.

    Args:
        messages: Each span of the runtime, with the span that wrote its message.
    """
    for (trace_id, _), (writer, _) in messages.items():
        yield trace_id, f"{KIND}{trace_id}"
        yield trace_id, f"{KIND}{writer}"
