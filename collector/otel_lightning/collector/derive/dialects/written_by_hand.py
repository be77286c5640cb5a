"""Spans that people write by hand: some keys of the GenAI conventions, without an operation.

The commonest is a span around a request, with the model and the token counts of its answer. A span
that has the sums of several calls looks like one; it becomes an agent run if the calls are below.
"""

from functools import partial

from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.dialects.semconv import tools as semconv_tools
from otel_lightning.collector.derive.rows import Reader, Span

NAME = semconv.NAME
RANK = 130
TOOL, MCP_METHOD = "gen_ai.tool.name", "mcp.method.name"
EXECUTED = {*semconv_tools.ARGUMENTS, *semconv_tools.RESULTS}


def matches(span: Span) -> bool:
    """Return whether the span has a model and some of its answer, or a tool and what it got."""
    return semconv.is_answered(span) or _is_tool(span)


def reader(span: Span) -> Reader:
    """Return the function that reads the span."""
    if semconv.is_answered(span):
        return partial(semconv.read_call, dialect=NAME, operation=semconv.unnamed_operation(span))
    return semconv_tools.read


def _is_tool(span: Span) -> bool:
    keys = span.attributes
    return TOOL in keys and MCP_METHOD not in keys and not EXECUTED.isdisjoint(keys)
