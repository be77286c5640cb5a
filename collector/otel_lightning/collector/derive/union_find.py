"""Sets that grow together: a union-find whose members keep the order in which they came."""

from collections.abc import Iterator


class Groups:
    """Names joined into groups. The root of a group is the member that was added first."""

    def __init__(self) -> None:
        self._up: dict[str, str] = {}
        self._rank: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        """Iterate over all members."""
        return iter(self._up)

    def add(self, member: str) -> None:
        """Make a member known; alone at first."""
        self._rank.setdefault(member, len(self._rank))
        self._up.setdefault(member, member)

    def root(self, member: str) -> str:
        """Return the first member of the group."""
        self.add(member)
        while self._up[member] != member:
            # Path halving: each step shortens the path for the next search.
            self._up[member] = self._up[self._up[member]]
            member = self._up[member]
        return member

    def join(self, one: str, other: str) -> None:
        """Make one group of two."""
        # The earlier member becomes the root, so the order of the joins has no effect.
        first, second = sorted((self.root(one), self.root(other)), key=self._rank.__getitem__)
        self._up[second] = first
