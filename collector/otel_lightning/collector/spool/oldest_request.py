"""When the oldest request that is not stored was received, without waiting for a disk that hangs.

That is read from the spool, in a thread of its own: a read from a disk that hangs does not end.
"""

import errno
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from otel_lightning.collector.spool.disk_time import STALLED_SECONDS

if TYPE_CHECKING:
    from otel_lightning.collector.spool.format import Position
    from otel_lightning.collector.spool.spool import Spool

READ_SECONDS = 1.0
"""Longest wait for a read, which takes a millisecond."""
READ_HANGS = f"the spool's disk has not ended a read for more than {STALLED_SECONDS:g} seconds"


class OldestRequest:
    """Reads when the oldest request that is not stored was received; any thread may ask."""

    def __init__(self, spool: "Spool") -> None:
        """Begin without a read."""
        self._spool = spool
        self._lock = threading.Lock()
        self._reading: Future[int | None] | None = None
        self._began = 0.0

    @property
    def is_stalled(self) -> bool:
        """Whether a read has lasted longer than `STALLED_SECONDS`."""
        return self._reading is not None and time.monotonic() - self._began > STALLED_SECONDS

    def received_ns(self, position: "Position") -> int | None:
        """Return when it was received, in Unix nanoseconds; None if there is none.

        Args:
            position: The position in the spool up to which requests are stored.

        Raises:
            TimeoutError: If the disk does not answer in time. Until it does, nobody waits again.
            OSError: If the spool cannot be read.
        """
        if not self._spool.backlog():
            return None
        with self._lock:
            reading = self._reading or self._begin(position)
        return reading.result(max(self._began + READ_SECONDS - time.monotonic(), 0))

    def _begin(self, position: "Position") -> "Future[int | None]":
        reading: Future[int | None] = Future()
        self._began = time.monotonic()
        self._reading = reading
        thread = threading.Thread(
            target=self._read, args=(position, reading), name="spool-reader", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._reading = None
            raise OSError(errno.EAGAIN, "the system has no room for a thread") from error
        return reading

    def _read(self, position: "Position", reading: "Future[int | None]") -> None:
        try:
            received_ns = self._spool.oldest_ns(position)
        except Exception as error:  # noqa: BLE001  it is raised by those who ask
            self._reading = None
            reading.set_exception(error)
        else:
            self._reading = None
            reading.set_result(received_ns)
