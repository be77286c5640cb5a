"""The dialects in which instrumentations write GenAI spans, one file a family.

A family is a module with `NAME`, `matches(span)` and `read(span)`. To add one, write its file and
its line in `FAMILIES`: evidence is looked for in that order, and keys beat scope names, because
scopes are reused across versions.
"""

from dataclasses import fields
from typing import Any, Protocol

from otel_lightning.collector.dialects import (
    indexed,
    langfuse,
    langsmith,
    litellm,
    mlflow,
    openai_agents,
    openinference,
    semconv,
    vercel,
)
from otel_lightning.collector.records import AgentRun, LlmCall, Span, ToolCall


class Family(Protocol):
    """One family of instrumentations."""

    NAME: str

    def matches(self, span: Span, /) -> bool:
        """Tell whether the span bears the evidence of this family."""
        ...

    def read(self, span: Span, /) -> LlmCall | ToolCall | AgentRun | None:
        """Return what the span records, or None if it is only structure."""
        ...


FAMILIES: tuple[Family, ...] = (
    openinference,
    mlflow,
    langfuse,
    langsmith,
    vercel,
    litellm,
    openai_agents,
    indexed,
    semconv,
)


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Return the model call, tool execution or agent run that a span records, if any.

    Raises:
        TypeError: If the span holds something of another type where a name or a number belongs.
    """
    family = next((family for family in FAMILIES if family.matches(span)), None)
    row = family.read(span) if family else None
    for name, kind in _PLAIN.get(type(row), ()):
        value = getattr(row, name)
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r} where the column needs {kind}.")
    return row


def _plain_fields(row: type) -> tuple[tuple[str, Any], ...]:
    plain = (str, str | None, int | None)
    return tuple((each.name, each.type) for each in fields(row) if each.type in plain)


_PLAIN: dict[type, tuple[tuple[str, Any], ...]] = {
    row: _plain_fields(row) for row in (LlmCall, ToolCall, AgentRun)
}
