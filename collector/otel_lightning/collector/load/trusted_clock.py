"""A clock for retention that detects jumps: a wrong clock must not delete data.

If the machine's clock is 40 days ahead at a start, every trace seems 40 days older. So a clock that
jumped forward, while this process runs or since its last run, is trusted again only after one day
without a jump. A wrong clock is usually corrected within that day. Until then nothing is deleted by
age.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from otel_lightning.collector.files.atomic import PRIVATE, replaced

logger = logging.getLogger(__name__)

HOUR_NS, DAY_NS = 3_600 * 10**9, 86_400 * 10**9
NAME = "trusted_time"
"""File in the spool's folder with the last trusted time, in Unix nanoseconds."""


def steady_ns() -> int:
    """Return nanoseconds since the machine started: a clock that cannot be set.

    On Linux it includes the time that the machine was suspended.
    """
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class TrustedClock:
    """Compares the clock with a steady clock, and at start with the last trusted time."""

    def __init__(
        self,
        folder: Path,
        newest_ns: int | None = None,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = steady_ns,
    ) -> None:
        """Detect whether the clock jumped since this store was last used.

        Args:
            folder: Folder of the file with the last trusted time.
            newest_ns: When the newest stored record was received, Unix nanoseconds; used instead
                if the file does not exist.
            wall: The clock that may jump, Unix nanoseconds.
            steady: A clock in nanoseconds that does not jump.
        """
        self._file, self._wall, self._steady = folder / NAME, wall, steady
        self._anchor = wall(), steady()
        self._trusted_from = steady()
        last = self._read()
        last = newest_ns if last is None else last
        # A process that was stopped for more than a day looks the same as a jump. It deletes by age
        # one day later than it could, which does no harm.
        if last is not None and self._anchor[0] - last > DAY_NS:
            self._distrust((self._anchor[0] - last) / DAY_NS)

    def now_ns(self) -> int | None:
        """Return the time in Unix nanoseconds; None while the clock is not trusted."""
        now, steady = self._wall(), self._steady()
        # How far the clock went beyond the steady one since the last look. A jump back is not
        # searched for: with it, traces only seem younger.
        ahead = (now - self._anchor[0]) - (steady - self._anchor[1])
        self._anchor = now, steady
        if ahead > HOUR_NS:
            self._distrust(ahead / DAY_NS)
        if steady < self._trusted_from:
            return None
        # An old time in this file can only cause distrust at the next start, so a full disk is no
        # reason to fail.
        with suppress(OSError), replaced(self._file, PRIVATE) as temporary:
            temporary.write_text(f"{now}\n")
        return now

    def _distrust(self, days: float) -> None:
        self._trusted_from = self._steady() + DAY_NS
        logger.warning(
            "The clock is %.1f days later than at the last use of this store. Nothing is deleted "
            "by age until it has run for a day without a jump.", days,
        )  # fmt: skip

    def _read(self) -> int | None:
        with suppress(OSError, ValueError):
            return int(self._file.read_text())
        return None
