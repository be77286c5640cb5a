"""Effect's AI packages for TypeScript: spans of toolkits, which have a tool's name and arguments.

Their model calls follow OpenTelemetry's conventions, without messages.
"""

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.rows import Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "effect_ai"
RANK = 120
EXECUTION = "Toolkit.handle"
TOOL, PARAMETERS = "tool", "parameters"


def matches(span: Span) -> bool:
    """Return whether a toolkit of Effect wrote the span, around the execution of a tool."""
    return span.name == EXECUTION and {TOOL, PARAMETERS} <= span.attributes.keys()


def read(span: Span) -> ToolCall:
    """Read an execution. Its result and the id of the tool call are not recorded."""
    arguments = json_text.parse(span.attributes[PARAMETERS])
    return span_rows.tool_call(span, span.attributes[TOOL], arguments=arguments)
