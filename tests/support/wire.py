"""What a capture's spans and logs carry, searched as raw values: this decides what was sent."""

import ast
import contextlib
import json
from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.derive.rows import LlmCall, Log, Span
from support.captures import Capture

BODY = "request_body_id"
"""The attribute of Claude Code's log records that ties a request and its response."""
Wire = list[tuple[str, Any]]
"""Every value that was sent, with its key; what looks like JSON or Python is looked into."""


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value inside, with its key; text that holds JSON or Python is looked into."""
    yield key, value
    if isinstance(value, str):
        inner = opened(value)
        if inner is not None:
            yield from leaves(inner, key)
    elif isinstance(value, dict):
        for name, below in value.items():
            yield from leaves(below, f"{key}.{name}")
    elif isinstance(value, list):
        for below in value:
            yield from leaves(below, key)


def opened(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    if text[:1] in "[{":
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(text)
    return None


def wire_of(call: LlmCall, capture: Capture) -> Wire:
    """Return all that the call's spans, their children and their logs carry."""
    ids = {call.span_id, *call.merged_span_ids}
    spans = [span for span in capture.spans if {span.span_id, span.parent_span_id} & ids]
    carried: list[Any] = [span.attributes for span in spans]
    carried += [event.attributes for span in spans for event in span.events]
    carried += [{**log.attributes, "body": log.body} for log in capture.logs if log.span_id in ids]
    carried += [log.attributes for log in bodies_of(spans, capture)]
    return [leaf for attributes in carried for leaf in leaves(attributes)]


def bodies_of(spans: list[Span], capture: Capture) -> list[Log]:
    """Return the log records with the bodies of the requests of some spans, in the same trace."""
    named = {(span.trace_id, span.attributes.get("request_id")) for span in spans}
    bodies = [log for log in capture.logs if BODY in log.attributes]
    answers = [log for log in bodies if (log.trace_id, log.attributes.get("request_id")) in named]
    ids = {
        (log.trace_id, log.attributes[BODY]) for log in answers if "request_id" in log.attributes
    }
    return [log for log in bodies if (log.trace_id, log.attributes[BODY]) in ids]


def on_wire(wire: Wire, value: Any) -> bool:
    if isinstance(value, str):
        return any(isinstance(leaf, str) and value in leaf for _, leaf in wire)
    spelled_out = json.dumps(value)
    return any(leaf == value or (isinstance(leaf, str) and spelled_out in leaf) for _, leaf in wire)


def wire_of_all(capture: Capture) -> Wire:
    """Return all that any span, event, resource or log carries."""
    carried: list[Any] = [span.attributes for span in capture.spans]
    carried += [span.resource for span in capture.spans]
    carried += [event.attributes for span in capture.spans for event in span.events]
    carried += [{**log.attributes, "body": log.body} for log in capture.logs]
    return [leaf for attributes in carried for leaf in leaves(attributes)]
