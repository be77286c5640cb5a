"""Divide the loader's time between storing and deriving.

Storing comes first, so that received spans can be asked for soon. But deriving always gets as much
time as storing took, also while a long backlog is stored. Senders are slowed to what both take
together (`pacing.py`), so in the long run deriving gets the time that it needs.
"""

MOST_OWED_SECONDS = 3.0
"""Limit on the time owed to deriving, so that storing never waits longer."""
BATCH_SECONDS = 2.0
"""Time that deriving one batch should take: nothing is stored meanwhile."""
LEAST_SPANS = 1_000
"""Fewest spans in a batch; the fixed cost of a batch is that of some hundred spans."""


class TimeShare:
    """The time that storing owes to deriving, in seconds."""

    def __init__(self) -> None:
        """Start with nothing owed."""
        self._owed = 0.0

    @property
    def is_deriving_due(self) -> bool:
        """Whether deriving comes before the next batch is stored."""
        return self._owed > 0

    def stored(self, seconds: float) -> None:
        """Add the time that storing took."""
        self._owed = min(self._owed + seconds, MOST_OWED_SECONDS)

    def derived(self, seconds: float) -> None:
        """Subtract the time that deriving took."""
        self._owed = max(self._owed - seconds, 0.0)

    def reset(self) -> None:
        """Set the owed time to 0, because nothing is left to derive."""
        self._owed = 0.0


class BatchSize:
    """How many spans to derive at once, so that a batch takes about `BATCH_SECONDS`.

    More at once cost less for each; how long they take depends on their texts, on the machine and
    on what runs beside us.
    """

    def __init__(self, most: int) -> None:
        """Start in the middle.

        Args:
            most: Most spans at once, which bounds memory.
        """
        self._most = most
        self._spans = min(most, 5 * LEAST_SPANS)

    @property
    def spans(self) -> int:
        """Number of spans to derive next."""
        return self._spans

    def took(self, seconds: float, *, is_full: bool) -> None:
        """Adapt to the time that a batch took.

        Args:
            seconds: Its time.
            is_full: Whether more spans were waiting: a smaller batch does not ask for larger ones.

        Example:
            >>> size = BatchSize(most=25_000)
            >>> size.took(0.5, is_full=True)
            >>> size.spans
            10000
            >>> size.took(6.0, is_full=True)
            >>> size.spans
            5000
        """
        # One step halves or doubles the size at most, so that one odd measurement changes little.
        factor = min(max(BATCH_SECONDS / max(seconds, 1e-3), 0.5), 2.0 if is_full else 1.0)
        # `most` may be below LEAST_SPANS; then memory decides.
        self._spans = max(
            min(round(factor * self._spans), self._most), min(LEAST_SPANS, self._most)
        )
