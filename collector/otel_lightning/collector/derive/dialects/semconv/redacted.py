"""Texts that Strands redacted before it sent them.

It writes blocks of content as JSON, so a plain mark in their place is never the text itself.
"""

from dataclasses import replace

from otel_lightning.collector.derive.rows import Attributes, Span

SCOPE = "strands.telemetry.tracer"
MARK = "[REDACTED]"
"""The text that replaces a redacted one."""


def removed(span: Span) -> Span:
    """Return a span without the texts that are redacted."""
    if span.scope_name != SCOPE:
        return span
    events = tuple(
        replace(event, attributes=_without_mark(event.attributes)) for event in span.events
    )
    return span._replace(attributes=_without_mark(span.attributes), events=events)


def _without_mark(attributes: Attributes) -> Attributes:
    if MARK not in attributes.values():
        return attributes
    return {key: value for key, value in attributes.items() if value != MARK}
