"""The shape of a span (the keys of its attributes, in order), and caches per shape.

Instrumentations write the same few sets of keys again and again. So the dialect of a span and the
places of its values are decided once per shape and not once per span. A growing history makes a new
shape for each length, so the number of cached shapes is limited.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from otel_lightning.collector.derive.rows import Attributes, Span

Plan = TypeVar("Plan")
AT_MOST = 4_096
"""Maximum number of cached shapes. When it is reached, the cache is cleared."""
LONGEST_VALUE = 64
"""Maximum length, in characters, of an attribute's value in the key of a cached decision."""
MOST_DECISIONS = 64
"""Maximum number of cached decisions per shape. Above it the values seldom repeat, so caching is
switched off for the shape."""


class Shape:
    """The keys of some attributes, and the plans that hold for all attributes with these keys."""

    __slots__ = ("keys", "known", "plans")

    def __init__(self, keys: tuple[str, ...]) -> None:
        """Create a shape without plans.

        Args:
            keys: The keys, in order.
        """
        self.keys = keys
        self.known = frozenset(keys)
        self.plans: dict[Any, Any] = {}

    def has_any(self, prefix: str | tuple[str, ...]) -> bool:
        """Tell whether any key begins with a prefix, or with one of several."""
        return any(key.startswith(prefix) for key in self.keys)

    def plan(self, make: Callable[["Shape"], Plan]) -> Plan:
        """Return the result of a function of this shape. The function is called once per shape."""
        try:
            plan: Plan = self.plans[make]
        except KeyError:
            plan = self.plans[make] = make(self)
        return plan


class Shaped(dict[str, str]):
    """Attributes with their shape. They must not be changed, or the shape would be wrong."""

    __slots__ = ("shape",)

    shape: Shape


_shapes: dict[tuple[str, ...], Shape] = {}


def shape_of_keys(keys: tuple[str, ...]) -> Shape:
    """Return the shape with these keys."""
    shape = _shapes.get(keys)
    if shape is None:
        # Attributes that exist keep their shape. For new ones an equal shape is made again.
        if len(_shapes) >= AT_MOST:
            _shapes.clear()
        shape = _shapes[keys] = Shape(keys)
    return shape


def shape_of(attributes: Attributes) -> Shape:
    """Return the shape of attributes."""
    if type(attributes) is Shaped:
        return attributes.shape
    return shape_of_keys(tuple(attributes))


def values_of(keys: Sequence[str]) -> Callable[[Attributes], tuple[str, ...]]:
    """Return a function that returns the values of these keys, in order, as a tuple."""
    if not keys:
        return lambda _: ()
    if len(keys) == 1:  # `itemgetter` returns the value alone then
        (key,) = keys
        return lambda attributes: (attributes[key],)
    return itemgetter(*keys)


class Plans(dict[tuple[str, ...], Plan]):
    """What the keys of a JSON object decide, such as a request's: made once for each set of keys.

    Example:
        >>> plans = Plans(lambda keys: "model" in keys)
        >>> plans[tuple({"model": "m"})]
        True
    """

    def __init__(self, make: Callable[[tuple[str, ...]], Plan]) -> None:
        """Create an empty cache.

        Args:
            make: A function of the keys, in order, without side effects.
        """
        super().__init__()
        self._make = make

    def __missing__(self, keys: tuple[str, ...]) -> Plan:
        """Make the plan of keys that have none."""
        if len(self) >= AT_MOST:
            self.clear()
        made = self[keys] = self._make(keys)
        return made


class Decision:
    """A cache of a function's results for the spans of one shape, by the values that it read.

    The function gets a span that records which fields and attributes it reads. Its result holds for
    every span of the shape in which these values are equal.

    Example:
        A function that reads one attribute's value is called once for each of its values.
    """

    __slots__ = ("_decide", "_is_kept", "_known", "_looked", "_seen")

    def __init__(self, decide: Callable[[Span], Any]) -> None:
        """Create an empty cache.

        Args:
            decide: A function of a span without side effects.
        """
        self._decide = decide
        self._looked: tuple[tuple[str, str | None], ...] = ()
        self._seen: Callable[[Span], Any] = _nothing
        self._known: dict[Any, Any] = {}
        self._is_kept = True

    def of(self, span: Span) -> Any:
        """Return the function's result for a span of this decision's shape."""
        if not self._is_kept:
            return self._decide(span)
        try:
            return self._known[self._seen(span)]
        except (KeyError, TypeError):  # TypeError: a field that cannot be hashed, such as events
            return self._decide_once(span)

    def _decide_once(self, span: Span) -> Any:
        # What was read before stays in the key: another branch of the function may read less.
        looked = dict.fromkeys(self._looked)
        decision = self._decide(_Watched(span, looked))  # type: ignore[arg-type]
        # The function took a branch that reads a further value. The keys so far lack it.
        if tuple(looked) != self._looked:
            self._looked = tuple(looked)
            self._seen = _values(self._looked)
            self._known = {}
        seen = self._seen(span)
        # For good: a decision that once saw a long text or too many values is made for each span.
        self._is_kept = len(self._known) < MOST_DECISIONS and _is_short(seen)
        if self._is_kept:
            self._known[seen] = decision
        return decision


def _nothing(_: Span) -> None:
    """Return what a decision has seen that reads no value."""


def _values(looked: tuple[tuple[str, str | None], ...]) -> Callable[[Span], Any]:
    """Return a function that returns the values of these fields and attributes of a span.

    Each attribute was read, so every span of the shape has its key.
    """
    fields = [name for name, key in looked if key is None]
    keys = [key for _, key in looked if key is not None]
    get_fields = attrgetter(*fields) if fields else None
    get_values = itemgetter(*keys) if keys else None
    if get_fields is None:
        return lambda span: get_values(span.attributes) if get_values else None
    if get_values is None:
        return get_fields
    return lambda span: (get_fields(span), get_values(span.attributes))


def _is_short(seen: object) -> bool:
    """Tell whether values that were seen are short texts, or None."""
    if isinstance(seen, tuple):
        return all(map(_is_short, seen))
    return seen is None or (isinstance(seen, str) and len(seen) <= LONGEST_VALUE)


class _Watched:
    """A span that records which of its fields and attributes are read."""

    def __init__(self, span: Span, looked: dict[tuple[str, str | None], None]) -> None:
        self._span, self._looked = span, looked
        self.attributes = _WatchedAttributes(span.attributes, looked)

    def __getattr__(self, name: str) -> Any:
        # Python calls this for names that the object lacks only, so not for `attributes`.
        self._looked[name, None] = None
        return getattr(self._span, name)


class _WatchedAttributes(Mapping[str, str]):
    """Attributes that record which values are read. Keys need no record: the shape has them."""

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
