"""Compiled readers of plain fields: the keys of a shape decide where each field of a row is.

A dialect declares the keys of each field, the most reliable first. For the spans of one shape most
of these keys are known to be absent. So a function is compiled once per shape that reads only the
keys that are there.

Example:
    FIELDS = Fields(provider=lower("gen_ai.provider.name", "gen_ai.system"))
    FIELDS.fill(call, span.attributes)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from otel_lightning.collector.derive.rows import Attributes
from otel_lightning.collector.derive.shapes import Shape, shape_of

Read = Callable[..., Any]
Fill = Callable[[Any, Attributes], None]


class Field(NamedTuple):
    """How one field of a row is read from attributes."""

    keys: Sequence[str]
    """The keys that may hold it, the most reliable first. They are looked at when a function is
    compiled, so a list may be completed until then."""
    read: Read | None = None
    """Makes the value from the texts of the keys that are present; None for the first text that is
    not empty."""


def text(*keys: str) -> Field:
    """Return a field that is the first of these attributes that is not empty."""
    return Field(keys)


def lower(*keys: str) -> Field:
    """Return a field that is the first of these attributes that is not empty, in lower case."""
    return Field(keys, _lower)


def _lower(*texts: str) -> str | None:
    for one in texts:
        if one:
            return one.lower()
    return None


class Fields:
    """Some fields of a row, and a compiled function for each shape that fills them in."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: Field) -> None:
        """Declare fields by their names in the row."""
        self._fields: Mapping[str, Field] = fields

    def fill(self, row: Any, attributes: Attributes) -> None:
        """Set the fields of a row whose keys are among the attributes; leave the others."""
        shape = shape_of(attributes)
        fill: Fill | None = shape.plans.get(self)
        if fill is None:
            fill = shape.plans[self] = self._compiled(shape)
        fill(row, attributes)

    def _compiled(self, shape: Shape) -> Fill:
        """Return a function with one line for each field: `row.model = a[k0] or a[k1] or None`.

        The keys are values of its globals (`k0`) and no part of its text.
        """
        known: dict[str, Any] = {}
        # A shape may have none of the keys; a function needs a statement.
        lines = ["def fill(row, a):", "    pass"]
        for name, (keys, read) in self._fields.items():
            texts = []
            for key in keys:
                if key in shape.known:
                    texts.append(f"a[k{len(known)}]")
                    known[f"k{len(known)}"] = key
            if texts and read is None:
                lines.append(f"    row.{name} = {' or '.join(texts)} or None")
            elif texts:
                known[f"read_{name}"] = read
                lines.append(f"    row.{name} = read_{name}({', '.join(texts)})")
        exec("\n".join(lines), known)  # noqa: S102 - field names of ours, see above
        fill: Fill = known["fill"]
        return fill
