"""Sets that grow together: a union-find whose members keep the order in which they came."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)


class Groups(Generic[Member]):
    """Members joined into groups. The root of a group is the member that was added first."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        """Begin with members that are alone.

        Args:
            members: The first members, in order.
        """
        self._up = {member: member for member in members}
        self._rank = {member: rank for rank, member in enumerate(self._up)}

    def __iter__(self) -> Iterator[Member]:
        """Iterate over all members."""
        return iter(self._up)

    def __contains__(self, member: object) -> bool:
        """Return whether a member is known."""
        return member in self._up

    def add(self, member: Member) -> None:
        """Make a member known; alone at first."""
        if member not in self._up:
            self._rank[member] = len(self._rank)
            self._up[member] = member

    def root(self, member: Member) -> Member:
        """Return the first member of the group."""
        self.add(member)
        while (above := self._up[member]) != member:
            # Path halving: each step shortens the path for the next search.
            self._up[member] = member = self._up[above]
        return member

    def join(self, one: Member, other: Member) -> None:
        """Make one group of two."""
        # The earlier member becomes the root, so the order of the joins has no effect.
        first, second = sorted((self.root(one), self.root(other)), key=self._rank.__getitem__)
        self._up[second] = first
