"""Caches of a store's rows in memory, cleared if a transaction is undone."""

from typing import Any, Protocol, TypeVar


class Cache(Protocol):
    """A copy in memory of data that a store has."""

    def clear(self) -> None:
        """Empty the cache; missing data is read from the store again."""


Cached = TypeVar("Cached", bound=Cache)


class Caches:
    """The caches of one connection, one of each class."""

    def __init__(self) -> None:
        """Begin without any."""
        self._made: dict[type[Cache], Any] = {}

    def of(self, kind: type[Cached]) -> Cached:
        """Return the cache of a class; the first call makes it, without arguments."""
        if kind not in self._made:
            self._made[kind] = kind()
        cache: Cached = self._made[kind]
        return cache

    def clear(self) -> None:
        """Clear all of them."""
        for cache in self._made.values():
            cache.clear()
