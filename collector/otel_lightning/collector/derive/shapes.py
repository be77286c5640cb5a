"""The shape of a span: the keys of its attributes, in order. What follows from them is found once.

Instrumentations write the same few sets of keys again and again. So which reader a span needs, and
where a reader finds what, is decided once a shape and not once a span. A history that grows makes a
shape a length, so only so many shapes are kept.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from otel_lightning.collector.derive.rows import Attributes, Span

Plan = TypeVar("Plan")
AT_MOST = 4_096
"""Number of shapes that are kept; above it all are forgotten."""
LONGEST_VALUE = 64
"""Characters of an attribute's value that may be part of a decision that is kept."""
MOST_DECISIONS = 64
"""Decisions that are kept a shape; above it the values do not repeat, and none is."""


class Shape:
    """The keys of some attributes, and what was found out about all attributes with these keys."""

    __slots__ = ("keys", "known", "plans")

    def __init__(self, keys: tuple[str, ...]) -> None:
        """Start with nothing found out.

        Args:
            keys: The keys, in order.
        """
        self.keys = keys
        self.known = frozenset(keys)
        self.plans: dict[Any, Any] = {}

    def plan(self, make: Callable[["Shape"], Plan]) -> Plan:
        """Return what a function finds in this shape; it is called once a shape."""
        try:
            found: Plan = self.plans[make]
        except KeyError:
            found = self.plans[make] = make(self)
        return found


class Shaped(dict[str, str]):
    """Attributes that know their shape. Nobody changes them."""

    __slots__ = ("shape",)

    shape: Shape


_shapes: dict[tuple[str, ...], Shape] = {}


def shape_of_keys(keys: tuple[str, ...]) -> Shape:
    """Return the shape with these keys."""
    shape = _shapes.get(keys)
    if shape is None:
        if len(_shapes) >= AT_MOST:
            _shapes.clear()
        shape = _shapes[keys] = Shape(keys)
    return shape


def shape_of(attributes: Attributes) -> Shape:
    """Return the shape of attributes."""
    if type(attributes) is Shaped:
        return attributes.shape
    return shape_of_keys(tuple(attributes))


class Decision:
    """What a function says of spans, kept by the shape and by the values that it looked at.

    The function is asked about a span that notes which fields and attributes it reads. What it said
    holds for every span of the shape in which these are equal.

    Example:
        A reader that looks at one attribute's value is asked once for each of its values.
    """

    __slots__ = ("_decide", "_is_kept", "_known", "_looked")

    def __init__(self, decide: Callable[[Span], Any]) -> None:
        """Start without a decision.

        Args:
            decide: A function of a span that changes nothing.
        """
        self._decide = decide
        self._looked: tuple[tuple[str, str | None], ...] = ()
        self._known: dict[tuple[Any, ...], Any] = {}
        self._is_kept = True

    def of(self, span: Span) -> Any:
        """Return what the function says of a span with this decision's shape."""
        if not self._is_kept:
            return self._decide(span)
        seen = self._seen(span) if self._looked else ()
        try:
            return self._known[seen]
        except (KeyError, TypeError):  # TypeError: a field such as the events, which has no hash
            return self._decide_once(span)

    def _decide_once(self, span: Span) -> Any:
        looked = dict.fromkeys(self._looked)
        found = self._decide(_Watched(span, looked))  # type: ignore[arg-type]
        if tuple(looked) != self._looked:
            self._looked = tuple(looked)
            self._known = {}
        seen = self._seen(span)
        self._is_kept = len(self._known) < MOST_DECISIONS and all(map(_is_short, seen))
        if self._is_kept:
            self._known[seen] = found
        return found

    def _seen(self, span: Span) -> tuple[Any, ...]:
        attributes = span.attributes
        return tuple([
            getattr(span, name) if key is None else attributes.get(key)
            for name, key in self._looked
        ])  # fmt: skip


def _is_short(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= LONGEST_VALUE)


class _Watched:
    """A span that notes what is read of it."""

    def __init__(self, span: Span, looked: dict[tuple[str, str | None], None]) -> None:
        self._span, self._looked = span, looked
        self.attributes = _WatchedAttributes(span.attributes, looked)

    def __getattr__(self, name: str) -> Any:
        self._looked[name, None] = None
        return getattr(self._span, name)


class _WatchedAttributes(Mapping[str, str]):
    """Attributes that note whose values are read; their keys are the shape's."""

    def __init__(self, attributes: Attributes, looked: dict[tuple[str, str | None], None]) -> None:
        self._attributes, self._looked = attributes, looked

    def __getitem__(self, key: str) -> str:
        if key in self._attributes:
            self._looked["attributes", key] = None
        return self._attributes[key]

    def __contains__(self, key: object) -> bool:
        return key in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)
