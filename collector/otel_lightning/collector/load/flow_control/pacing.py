"""Slow the senders to the rate at which requests are stored and derived (backpressure).

The work that waits is measured in seconds: the bytes on the spool and the traces to derive, each
times its measured cost. A little work that waits is normal, and a burst may add some: nobody is
slowed. As more waits, the spool pauses longer after each write, so that acknowledgements come no
faster than requests are stored and derived. Where that does not suffice, because very many senders
wait at once, new requests are refused, to be sent again.
"""

import math

FREE_SHARE = 1 / 15
"""Work that may wait before senders are slowed, as a share of the largest lag: 2 of 30 seconds."""
BALANCED_SHARE = 1 / 2
"""Work at which requests are acknowledged as fast as they are stored and derived."""
STEEPEST = 3.0
"""Most that a pause may be longer than the time to store and derive what was acknowledged."""
STORED_WITHIN_SECONDS = 0.75
"""Work of storing alone that may wait; it is enough to fill row groups."""
LONGEST_PAUSE_SECONDS = 5.0
"""Python's exporter gives up after 10 seconds, in which it has to have its answer."""
MEMORY_SECONDS = 20.0
"""Time over which a cost is averaged: an older measurement counts for less and less."""
BATCH_BYTES, BATCH_TRACES = 2_000_000, 200
"""Fixed cost of a batch: without it a small batch would look expensive."""


class Cost:
    """The seconds that one unit of work takes, averaged over the last `MEMORY_SECONDS` of work."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._units = 0.0

    def add(self, units: float, seconds: float) -> None:
        """Add a measurement."""
        # Both sums forget at the same rate, so their quotient is an average in which a measurement
        # counts exp(-age / MEMORY_SECONDS), with its age in seconds of work.
        weight = math.exp(-seconds / MEMORY_SECONDS)
        self._seconds = weight * self._seconds + seconds
        self._units = weight * self._units + units

    @property
    def per_unit(self) -> float:
        """Seconds a unit; 0 before the first measurement."""
        return self._seconds / self._units if self._units else 0.0


class Pacing:
    """The cost of storing and deriving, and the time for which senders have to wait."""

    def __init__(self, max_lag: float) -> None:
        """Start without measurements.

        Args:
            max_lag: Most seconds between receiving a request and deriving its rows.
        """
        self._max_lag = max_lag
        self._storing, self._deriving = Cost(), Cost()
        self._traces = self._bytes = 0.0

    def stored(self, size: int, traces: int, seconds: float) -> None:
        """Add a measurement of storing: bytes, and traces that have to be derived for them."""
        self._storing.add(size + BATCH_BYTES, seconds)
        weight = math.exp(-seconds / MEMORY_SECONDS)
        self._traces = weight * self._traces + traces
        self._bytes = weight * self._bytes + size

    def derived(self, traces: int, seconds: float) -> None:
        """Add a measurement of deriving."""
        self._deriving.add(traces + BATCH_TRACES, seconds)

    def expected(self, unstored: int, underived: int) -> float:
        """Return the seconds that the waiting work will take.

        Args:
            unstored: Bytes on the spool.
            underived: Traces and log records to derive.
        """
        return unstored * self._per_byte + underived * self._deriving.per_unit

    def pause(self, size: int, unstored: int, work: float) -> float:
        """Return the seconds to wait after acknowledging `size` bytes.

        Args:
            size: Bytes that were just acknowledged.
            unstored: Bytes on the spool.
            work: Seconds of work that wait, or seconds of lag if that is more.

        Example:
            >>> pacing = Pacing(max_lag=30.0)
            >>> pacing.stored(98_000_000, 1_000, seconds=1.0)
            >>> pacing.derived(800, seconds=9.0)
            >>> [round(pacing.pause(1_000_000, 0, work), 2) for work in (2, 8.5, 15, 28)]
            [0.0, 0.05, 0.1, 0.2]
        """
        free = FREE_SHARE * self._max_lag
        # 0 while the work is free, and 1 at the balance: there a pause is as long as the work that
        # the acknowledged bytes cause.
        steepness = (work - free) / (BALANCED_SHARE * self._max_lag - free)
        pause = size * self._per_byte * min(max(steepness, 0.0), STEEPEST)
        # Storing has a shorter limit of its own, so that received spans can be queried soon even
        # while deriving lags.
        if unstored * self._storing.per_unit > STORED_WITHIN_SECONDS:
            pause = max(pause, size * self._storing.per_unit)
        return min(pause, LONGEST_PAUSE_SECONDS)

    @property
    def _per_byte(self) -> float:
        """Seconds to store a byte and to derive its traces."""
        traces = self._traces / self._bytes if self._bytes else 0.0
        return self._storing.per_unit + traces * self._deriving.per_unit
