"""Recognise GenAI spans of any instrumentation by their attributes."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.util.types import Attributes

_GENAI_PREFIXES: Final = ("gen_ai.", "openinference.", "traceloop.", "llm.")
_MODEL_CALLS: Final = frozenset({"chat", "text_completion", "generate_content"})


def attributes_of(span: Any) -> Mapping[str, Any]:
    """Return the attributes that a span has so far. The API has no such method, only the SDK.

    This is the dictionary inside the SDK's object, which takes a lock for each access; several
    reads per model call would add up. Do not change it: use `write_late`.
    """
    held = getattr(span, "_attributes", None)
    inner: Mapping[str, Any] | None = getattr(held, "_dict", None)
    if inner is not None:
        return inner
    return getattr(span, "attributes", None) or {}


def is_genai(present: Attributes) -> bool:
    """Return whether these are the attributes of an LLM, agent or tool span.

    Args:
        present: Attributes that the span has so far.
    """
    # A tuple, because another thread may add an attribute during the loop.
    return any(name.startswith(_GENAI_PREFIXES) for name in tuple(present or ()))


def is_llm(present: Attributes) -> bool:
    """Return whether these are the attributes of a span for one model call.

    Args:
        present: Attributes that the span has so far.

    Example:
        >>> is_llm({"gen_ai.operation.name": "chat"})
        True
        >>> is_llm({"gen_ai.operation.name": "invoke_agent"})
        False
    """
    present = present or {}
    return (
        present.get("gen_ai.operation.name") in _MODEL_CALLS
        or present.get("openinference.span.kind") == "LLM"
    )


def write_late(span: Any, values: Mapping[str, Any]) -> None:
    """Set attributes on a span of the SDK that was not exported yet.

    Values are stored without validation: checking each of a thousand token ids would take more
    time than the rest of our work in a call.

    Args:
        span: A span, in a span processor's `on_start` or `_on_ending`.
        values: Values by attribute name, of the types that OpenTelemetry allows.
    """
    held = span._attributes  # noqa: SLF001 - the SDK has no public way to it
    with held._lock:  # noqa: SLF001
        held._dict.update(values)  # noqa: SLF001


def drop_late(span: Any, names: Iterable[str]) -> None:
    """Remove attributes from a span of the SDK that was not exported yet.

    Args:
        span: A span, in a span processor's `on_start` or `_on_ending`.
        names: Names of the attributes.
    """
    held = span._attributes  # noqa: SLF001 - the SDK has no public way to it
    with held._lock:  # noqa: SLF001
        for name in names:
            held._dict.pop(name, None)  # noqa: SLF001


def is_tool(present: Attributes) -> bool:
    """Return whether these are the attributes of a span for one execution of a tool.

    Args:
        present: Attributes that the span has.
    """
    present = present or {}
    return (
        present.get("gen_ai.operation.name") == "execute_tool"
        or present.get("openinference.span.kind") == "TOOL"
        or present.get("traceloop.span.kind") == "tool"
    )
