"""Spans that failed before their instrumentation set a key: only the name tells the operation.

OpenLIT sets the keys of Anthropic's calls after the answer, Google ADK 1 those of all its spans.
"""

from collections.abc import Collection

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.rows import Span

ADK_SCOPE = "gcp.vertex.agent"
ADK_CALL = "call_llm"
TOOL = "execute_tool"
KEYS = ("gen_ai.", "llm.")
"""Prefixes of the keys of calls and tools."""


def operation(span: Span, operations: Collection[str]) -> str | None:
    """Return the operation in the name of such a span, or None for any other span.

    Args:
        span: The span.
        operations: The names of operations that are model calls.
    """
    scope = span.scope_name or ""
    if "instrumentation" not in scope and scope != ADK_SCOPE:
        return None
    if not span_rows.failed(span) or any(key.startswith(KEYS) for key in span.attributes):
        return None
    if span.name == ADK_CALL:
        return "chat"
    named, _, of = span.name.partition(" ")
    return named if of and (named == TOOL or named in operations) else None
