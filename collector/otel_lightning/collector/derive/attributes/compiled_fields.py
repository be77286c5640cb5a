"""Fields of a row that are read from attributes by a function that is compiled for each shape.

A dialect declares which keys may hold a field, the most reliable first. Spans of one shape have the
same keys (see `shapes`), and most declared keys are not among them. So for each shape one function
is compiled, which reads only the keys that the shape has.

Example:
    FIELDS = Fields(provider=lower("gen_ai.provider.name", "gen_ai.system"))
    FIELDS.fill(call, span.attributes)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.rows import Attributes

Read = Callable[..., Any]
Fill = Callable[[Any, Attributes], None]


class Field(NamedTuple):
    """How one field of a row is read from attributes."""

    keys: Sequence[str]
    """The keys that may hold it, the most reliable first. The list is read when a function is
    compiled, so that `spellings.add` may still append a dialect's own keys to it."""
    read: Read | None = None
    """Makes the value from the texts of the keys that are present. Without it the value is the
    first text that is not empty."""


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


def first(shape: Shape, keys: Iterable[str]) -> Callable[[Attributes], str | None]:
    """Return a function that does what `reading.text` does for the attributes of one shape."""
    known = [key for key in keys if key in shape.known]
    if not known:
        return lambda _: None
    if len(known) == 1:
        (key,) = known
        return lambda attributes: attributes[key] or None
    values = itemgetter(*known)
    return lambda attributes: next(filter(None, values(attributes)), None)


class Fields:
    """Some fields of a row, and a compiled function for each shape that fills them in."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: Field) -> None:
        """Declare fields by their names in the row."""
        self._fields: Mapping[str, Field] = fields

    def fill(self, row: Any, attributes: Attributes) -> None:
        """Set each field of the row that has a key among the attributes; leave the other fields."""
        shape = shape_of(attributes)
        fill: Fill | None = shape.plans.get(self)
        if fill is None:
            fill = shape.plans[self] = self.filler(shape)
        fill(row, attributes)

    def filler(self, shape: Shape) -> Fill:
        """Return the function that does what `fill` does for the attributes of one shape.

        It has one line for each field: `row.model = a[k0] or a[k1] or None`.

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
