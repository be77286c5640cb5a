"""When a rollout that grows is derived again: not with each of its turns, yet soon after the last.

A rollout is derived as a whole, so one of n turns that were derived one by one would cost the
square of n. It waits instead, as long as deriving all that grows took, times `PATIENCE`: what such
rollouts cost is then a share of the time, and the longer they are, the more turns come at once.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

LARGE = 16
"""Rollouts of fewer calls cost too little to wait."""
PATIENCE = 4.0
MEMORY_SECONDS = 60.0
"""For so long a rollout that was derived counts as one that grows when it is derived again."""


class _Derived(NamedTuple):
    seconds: float
    due: float
    grows: bool


class Pace:
    """Which large rollouts were derived just now, and when they may be again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with none.

        Args:
            clock: The seconds since any one moment.
        """
        self.clock = clock
        self._derived: dict[str, _Derived] = {}

    def waiting(self) -> list[str]:
        """Return the ids of the rollouts that are not due."""
        now = self.clock()
        return [name for name, one in self._derived.items() if one.due > now]

    def note(self, calls: Mapping[str, int], began: float) -> None:
        """Take down what was derived.

        Args:
            calls: How many calls each rollout has.
            began: When deriving all of these began.
        """
        ended = self.clock()
        each = (ended - began) / max(sum(calls.values()), 1)
        large = {name: each * count for name, count in calls.items() if count >= LARGE}
        known = {n: one for n, one in self._derived.items() if one.due + MEMORY_SECONDS > ended}
        growing = sum(seconds for name, seconds in large.items() if name in known)
        growing += sum(
            one.seconds
            for name, one in known.items()
            if one.grows and one.due > ended and name not in large
        )
        for name, seconds in large.items():
            due = ended + PATIENCE * max(growing, seconds)
            known[name] = _Derived(seconds, due, grows=name in known)
        self._derived = known
