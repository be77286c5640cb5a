"""Divide the loader's time between storing and deriving.

Storing comes first, so that received spans can be asked for soon. But deriving always gets as much
time as storing took, also while a long backlog is stored. Senders are slowed to what both take
together (`pacing.py`), so in the long run deriving gets the time that it needs.
"""

MOST_OWED_SECONDS = 3.0
"""Limit on the time owed to deriving, so that storing never waits longer."""
BATCH_SECONDS = 2.0
"""Time that deriving one batch should take: nothing is stored meanwhile."""
FIXED_TIMES = 2.0
"""While rows come late, a batch may take this many times its fixed cost."""
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
    on what runs beside us. A batch also takes a time that does not depend on its size: if a
    conversation goes on that is no longer remembered, whole tables are searched, for seconds in a
    large store. Then small batches would only take this time more often.
    """

    def __init__(self, most: int) -> None:
        """Start in the middle.

        Args:
            most: Most spans at once, which bounds memory.
        """
        self._most = most
        self._spans = min(most, 5 * LEAST_SPANS)
        self._fixed = 0.0
        """Estimated time of a batch that does not depend on its size, in seconds."""
        self._last: tuple[int, float] | None = None
        """The size of the last full batch, and its time in seconds."""

    @property
    def spans(self) -> int:
        """Number of spans to derive next."""
        return self._spans

    def took(self, seconds: float, *, is_full: bool, is_late: bool = False) -> None:
        """Adapt to the time that a batch took.

        Args:
            seconds: Its time.
            is_full: Whether more spans were waiting: a smaller batch does not ask for larger ones.
            is_late: Whether rows come late. Then batches may take longer than `BATCH_SECONDS` if
                smaller ones would hardly take less.

        Example:
            >>> size = BatchSize(most=25_000)
            >>> size.took(0.5, is_full=True)
            >>> size.spans
            10000
            >>> size.took(6.0, is_full=True)
            >>> size.spans
            5000
        """
        if is_full:
            self._estimate_fixed(seconds)
        aim = max(BATCH_SECONDS, FIXED_TIMES * self._fixed) if is_late else BATCH_SECONDS
        # One step halves or doubles the size at most, so that one odd measurement changes little.
        factor = min(max(aim / max(seconds, 1e-3), 0.5), 2.0 if is_full else 1.0)
        # `most` may be below LEAST_SPANS; then memory decides.
        self._spans = max(
            min(round(factor * self._spans), self._most), min(LEAST_SPANS, self._most)
        )

    def _estimate_fixed(self, seconds: float) -> None:
        """Draw a line through the times of the last two batches, if their sizes differ enough."""
        spans, last, self._last = self._spans, self._last, (self._spans, seconds)
        if last is None or abs(spans - last[0]) < last[0] / 5:
            self._fixed /= 2  # it has to be seen again
            return
        a_span = (seconds - last[1]) / (spans - last[0])
        self._fixed = min(max(seconds - a_span * spans, 0.0), seconds)
