"""The dialects in which instrumentations write GenAI spans: one file for each family.

A family is a module with `NAME`, `matches(span)` and either `read(span)` or `reader(span)`. To add
a family, add its file: every module of this folder is loaded. Two families that many packages write
have a folder each, whose `__init__.py` is the module: `openinference/` and `semconv/`.

Families are asked in ascending order of `RANK` (default 0), and the first that matches reads the
span. A family whose keys no other family writes gets a low rank; a family that matches many spans
gets a high one. Prefer attribute keys to scope names as evidence, because scope names are reused
across versions.

`read` returns the row that a span records, or None if the span only groups other spans. A family
that writes several kinds of spans may have `reader` instead, which returns the function that reads
spans of this kind. A family declares its own keys for the id of a conversation, the name of an
agent, a node of LangGraph and the cost of a call as `CONVERSATION_KEYS`, `AGENT_KEYS`, `NODE_KEYS`
and `COST_KEYS` (see `spellings`).

The decision is cached: it holds for all spans with the same keys and the same values of the fields
that `matches` and `reader` read. So both must depend on their span alone, and read short values.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from types import ModuleType, NoneType
from typing import Any, NamedTuple

from otel_lightning.collector.derive.attributes import reading, spellings
from otel_lightning.collector.derive.attributes.shapes import Decision, Shape, shape_of
from otel_lightning.collector.derive.rows import (
    AgentRun,
    LlmCall,
    Reader,
    Retrieval,
    Row,
    Span,
    ToolCall,
)


class Family(NamedTuple):
    """One family of instrumentations."""

    name: str
    matches: Callable[[Span], bool]
    """Returns whether an instrumentation of this family wrote the span."""
    reader: Callable[[Span], Reader]
    """Returns the function that reads spans of this kind."""


def _families() -> list[Family]:
    """Return the families of this folder, sorted by rank."""
    names = (each.name for each in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    modules.sort(key=_rank)
    for module in modules:
        spellings.add(module)
    return [_family(module) for module in modules]


def _family(module: ModuleType) -> Family:
    # A family with one function for all of its spans has no `reader`.
    reader = getattr(module, "reader", None) or (lambda _: module.read)
    return Family(module.NAME, module.matches, reader)


def _rank(module: ModuleType) -> tuple[int, str]:
    return getattr(module, "RANK", 0), module.__name__


FAMILIES: tuple[Family, ...] = tuple(_families())


def read(span: Span) -> Row | None:
    """Return the model call, tool execution, agent run or retrieval that a span records, if any.

    Args:
        span: The span, with the log records that carry its span id.
    """
    reader: Reader | None = shape_of(span.attributes).plan(decision).of(span)
    return reader(span) if reader else None


def decision(_: Shape) -> Decision:
    """Return the decision, for spans of one shape, which function reads them."""
    return Decision(_reader)


def _reader(span: Span) -> Reader | None:
    """Return the function that reads a span: of the first family that matches, or None."""
    for family in FAMILIES:
        if family.matches(span):
            return family.reader(span)
    return None


def make_fit(row: Row) -> str | None:
    """Clear the values that their columns cannot hold, such as a list as a name; say which.

    One such value would make the insert fail, and with it all other rows of the batch. A count that
    is written as text becomes a number.

    Returns:
        The names of the fields that were cleared, with their values, or None.
    """
    kind = type(row)
    types = kind, *map(type, _VALUES[kind](row))
    if types in _FITTING:
        return None
    cleared = []
    for (name, kinds), one in zip(_FIELDS[kind], types[1:], strict=True):
        if not issubclass(one, kinds) or (one is bool and int in kinds):
            value = getattr(row, name)
            count = reading.count(value) if int in kinds else None
            setattr(row, name, {} if dict in kinds else count)
            if count is None:
                cleared.append(f"{name} is {str(value)[:LONGEST_SHOWN]}")
    if cleared:
        return f"{', '.join(cleared)}: its column cannot hold it"
    if len(_FITTING) < MOST_FITTING:
        _FITTING.add((kind, *map(type, _VALUES[kind](row))))
    return None


def _plain_fields(row: type) -> list[tuple[str, tuple[type, ...]]]:
    """Return the name and the allowed types of each field that is checked."""
    kinds: dict[Any, tuple[type, ...]] = {
        str: (str,),
        str | None: (str, NoneType),
        int | None: (int, NoneType),
        dict[str, Any]: (dict,),
        list[Any] | None: (list, NoneType),
    }
    return [(each.name, kinds[each.type]) for each in fields(row) if each.type in kinds]


LONGEST_SHOWN = 80
"""Maximum number of characters of a value in a message."""
MOST_FITTING = 4_096
"""Maximum number of combinations of types that are remembered."""
_FITTING: set[tuple[type, ...]] = set()
"""The class of a row and the types of its plain fields, for each combination that its table can
hold. Most rows have one of a few."""
_FIELDS = {row: _plain_fields(row) for row in (LlmCall, ToolCall, AgentRun, Retrieval)}
_VALUES: dict[type, Callable[[object], tuple[Any, ...]]] = {
    row: attrgetter(*(name for name, _ in plain)) for row, plain in _FIELDS.items()
}
