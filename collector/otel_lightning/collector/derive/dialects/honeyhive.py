"""HoneyHive: decorated functions beside the model calls, which other instrumentations record.

What a tool was given and returned is flattened into attributes: `honeyhive_inputs.city`,
`honeyhive_outputs.result`. The processor also writes the session id onto every span.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import flattened
from otel_lightning.collector.derive.dialects.openinference.flattened_messages import value
from otel_lightning.collector.derive.rows import Span, ToolCall

NAME = "honeyhive"
RANK = 120
KIND = "honeyhive_event_type"
INPUTS, OUTPUTS = "honeyhive_inputs.", "honeyhive_outputs."
ERROR, ERROR_SPAN = "honeyhive_error", "_error"
"""A tool that fails has a second span beside its own, with this attribute and end of the name."""


def matches(span: Span) -> bool:
    """Return whether the span is that of a function that HoneyHive decorated."""
    return KIND in span.attributes


def read(span: Span) -> ToolCall | None:
    """Read the execution of a tool; the spans of model calls are those of functions around them."""
    attributes = span.attributes
    if attributes[KIND] != "tool" or (ERROR in attributes and span.name.endswith(ERROR_SPAN)):
        return None
    given = _values(flattened.nested(attributes, INPUTS))
    outputs = _values(flattened.nested(attributes, OUTPUTS))
    return span_rows.tool_call(
        span,
        attributes.get("honeyhive_event_name") or span.name,
        arguments=given or None,
        result=outputs["result"]
        if isinstance(outputs, dict) and outputs.keys() == {"result"}
        else outputs or None,
    )


def _values(node: Any) -> Any:
    """Return flattened values as JSON values."""
    if isinstance(node, dict):
        return {key: _values(one) for key, one in node.items()}
    return list(map(_values, node)) if isinstance(node, list) else value(node)
