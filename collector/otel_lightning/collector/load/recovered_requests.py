"""Requests that a former process, such as one that was killed, left on the spool."""

import logging
from collections.abc import Iterable

from otel_lightning.collector.spool.format import Position, Record

logger = logging.getLogger(__name__)


class RecoveredRequests:
    """Counts those that this process stores, and logs their number when all are stored."""

    def __init__(self, start: Position, end: Position) -> None:
        """Count from a position on.

        Args:
            start: The position up to which the former processes stored them.
            end: The end of the spool when this process began.
        """
        self._end, self._is_over = end, start >= end
        self.stored = 0
        """Number of them that were stored until now."""

    def count(self, records: Iterable[Record]) -> int:
        """Return how many records are among them; they are those at the beginning."""
        return 0 if self._is_over else sum(record.end <= self._end for record in records)

    def note_stored(self, number: int, end: Position) -> None:
        """Record that this number of them, and all up to a position, were stored."""
        self.stored += number
        if not self._is_over and end >= self._end:
            self._is_over = True
            logger.info("%d requests that a former process left are stored now.", self.stored)
