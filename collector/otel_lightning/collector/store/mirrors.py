"""What is kept in memory of a store's rows, and forgotten if a transaction is undone."""

from typing import Any, Protocol, TypeVar


class Mirror(Protocol):
    """Something in memory that repeats what a store has."""

    def clear(self) -> None:
        """Forget everything: what is missing here is read from the store."""


Mirrored = TypeVar("Mirrored", bound=Mirror)


class Mirrors:
    """The mirrors of one connection, one of each class."""

    def __init__(self) -> None:
        """Begin without any."""
        self._made: dict[type[Mirror], Any] = {}

    def of(self, kind: type[Mirrored]) -> Mirrored:
        """Return the mirror of a class, which is made, without arguments, at the first call."""
        if kind not in self._made:
            self._made[kind] = kind()
        made: Mirrored = self._made[kind]
        return made

    def clear(self) -> None:
        """Clear all of them."""
        for mirror in self._made.values():
            mirror.clear()
