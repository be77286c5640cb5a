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
        """Return whether any key begins with a prefix, or with one of several."""
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
    """A cache of plans for JSON objects, such as requests: one plan for each set of keys.

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

    __slots__ = ("_decide", "_inputs", "_is_cached", "_key_of", "_results")

    def __init__(self, decide: Callable[[Span], Any]) -> None:
        """Create an empty cache.

        Args:
            decide: A function of a span without side effects.
        """
        self._decide = decide
        self._inputs: tuple[tuple[str, str | None], ...] = ()
        """The fields of a span, (name, None), and attributes, (name, key), that it reads."""
        self._key_of: Callable[[Span], Any] = _nothing
        """Returns the values of the inputs: the key of a result."""
        self._results: dict[Any, Any] = {}
        self._is_cached = True

    def of(self, span: Span) -> Any:
        """Return the function's result for a span of this decision's shape."""
        if not self._is_cached:
            return self._decide(span)
        try:
            return self._results[self._key_of(span)]
        except (KeyError, TypeError):  # TypeError: a field that cannot be hashed, such as events
            return self._decide_once(span)

    def _decide_once(self, span: Span) -> Any:
        # Inputs read before stay in the key: another branch of the function may read fewer.
        inputs = dict.fromkeys(self._inputs)
        decision = self._decide(_WatchedSpan(span, inputs))  # type: ignore[arg-type]
        # The function took a branch that reads a further value. The keys so far lack it.
        if tuple(inputs) != self._inputs:
            self._inputs = tuple(inputs)
            self._key_of = _values(self._inputs)
            self._results = {}
        key = self._key_of(span)
        # For good: a decision that once saw a long text or too many values is made for each span.
        self._is_cached = len(self._results) < MOST_DECISIONS and _is_short(key)
        if self._is_cached:
            self._results[key] = decision
        return decision


def _nothing(_: Span) -> None:
    """Return the key of a decision that reads no value."""


def _values(inputs: tuple[tuple[str, str | None], ...]) -> Callable[[Span], Any]:
    """Return a function that returns the values of these fields and attributes of a span.

    Each attribute was read, so every span of the shape has its key.
    """
    fields = [name for name, key in inputs if key is None]
    keys = [key for _, key in inputs if key is not None]
    get_fields = attrgetter(*fields) if fields else None
    get_values = itemgetter(*keys) if keys else None
    if get_fields is None:
        return lambda span: get_values(span.attributes) if get_values else None
    if get_values is None:
        return get_fields
    return lambda span: (get_fields(span), get_values(span.attributes))


def _is_short(value: object) -> bool:
    """Return whether the values in a key are short texts, or None."""
    if isinstance(value, tuple):
        return all(map(_is_short, value))
    return value is None or (isinstance(value, str) and len(value) <= LONGEST_VALUE)


class _WatchedSpan:
    """A span that records which of its fields and attributes are read."""

    def __init__(self, span: Span, inputs: dict[tuple[str, str | None], None]) -> None:
        self._span, self._inputs = span, inputs
        self.attributes = _WatchedAttributes(span.attributes, inputs)

    def __getattr__(self, name: str) -> Any:
        # Python calls this for names that the object lacks only, so not for `attributes`.
        self._inputs[name, None] = None
        return getattr(self._span, name)


class _WatchedAttributes(Mapping[str, str]):
    """Attributes that record which values are read. Keys need no record: the shape has them."""

    def __init__(self, attributes: Attributes, inputs: dict[tuple[str, str | None], None]) -> None:
        self._attributes, self._inputs = attributes, inputs

    def __getitem__(self, key: str) -> str:
        if key in self._attributes:
            self._inputs["attributes", key] = None
        return self._attributes[key]

    def __contains__(self, key: object) -> bool:
        return key in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)
