"""Delays after which a growing rollout is derived again.

A rollout is always derived as a whole. A rollout of n turns that is derived after each turn, or a
trace of n spans that is derived after each late span, would therefore cost the square of n. So a
large rollout waits `PATIENCE` times as long as the last deriving of all growing rollouts took: they
then take a fifth of the time at most, and one deriving covers several turns. While nothing else is
to be derived, a long delay is a quarter of that: then they take half of the time at most.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from otel_lightning.collector.derive.batches.rollout_sizes import Size

LARGE, LARGE_SPANS = 16, 1_000
"""A rollout with fewer calls and fewer spans never waits, because deriving it is cheap."""
PATIENCE = 4.0
"""Seconds of waiting for each second that deriving took."""
ALONE_PATIENCE, ALONE_SECONDS = 1.0, 5.0
"""The same while nothing else is to be derived, but a delay is not made shorter than 5 seconds: a
conversation whose turns come faster than that is not derived more often."""
MEMORY_SECONDS = 60.0
"""A rollout that is derived again within this time after its delay counts as growing."""


class _Derived(NamedTuple):
    seconds: float
    due: float
    due_alone: float
    """When it may be derived if nothing else is to be derived."""
    grows: bool


class Backoff:
    """Large rollouts that were derived recently, and when each may be derived again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any rollout.

        Args:
            clock: Returns a time in seconds.
        """
        self.clock = clock
        self._derived: dict[str, _Derived] = {}

    def waiting(self, *, alone: bool = False) -> list[str]:
        """Return the ids of the rollouts whose delay has not passed yet.

        Args:
            alone: Whether nothing else is to be derived.
        """
        now = self.clock()
        delays = self._derived.items()
        return [name for name, one in delays if (one.due_alone if alone else one.due) > now]

    def put_off(self, grace: float) -> list[str]:
        """Return the ids of the rollouts that wait, or whose delay ended recently.

        The latter are picked next, or derived in a worker. Their oldest span is as old as the delay
        was long, which is no lag.

        Args:
            grace: Seconds since the delay, at most `MEMORY_SECONDS`.
        """
        since = self.clock() - min(grace, MEMORY_SECONDS)
        return [name for name, one in self._derived.items() if one.due > since]

    def note(self, sizes: Mapping[str, Size], began: float) -> None:
        """Record that rollouts were derived together, and set the delays of the large ones.

        Args:
            sizes: Number of calls and spans of each rollout.
            began: Time at which deriving them began, in seconds of the clock.
        """
        ended = self.clock()
        # The time is divided among the rollouts of the batch by their sizes.
        each = (ended - began) / max(sum(map(sum, sizes.values())), 1)
        large = {
            name: each * sum(size)
            for name, size in sizes.items()
            if size.calls >= LARGE or size.spans >= LARGE_SPANS
        }
        # Forgotten are those whose delay passed long ago: they no longer grow.
        recent = {n: one for n, one in self._derived.items() if one.due + MEMORY_SECONDS > ended}
        growing = sum(seconds for name, seconds in large.items() if name in recent)
        # Growing rollouts that wait now will be derived as well, so their time counts too.
        growing += sum(
            one.seconds
            for name, one in recent.items()
            if one.grows and one.due > ended and name not in large
        )
        for name, seconds in large.items():
            took = max(growing, seconds)
            delay = PATIENCE * took
            alone = min(delay, max(ALONE_PATIENCE * took, ALONE_SECONDS))
            recent[name] = _Derived(seconds, ended + delay, ended + alone, grows=name in recent)
        self._derived = recent
