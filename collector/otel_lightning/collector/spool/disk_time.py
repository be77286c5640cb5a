"""Notice that the disk does not end a write: a disk that hangs reports no error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

STALLED_SECONDS = 10.0
HANGS = f"the spool's disk has not ended a write for more than {STALLED_SECONDS:g} seconds"


class DiskTime:
    """How long one thread has been waiting for the disk; any thread may ask."""

    def __init__(self) -> None:
        """Begin without a write."""
        self._since: float | None = None
        self.was_slow = False
        """Whether the last block took so long that the next one may exceed `STALLED_SECONDS`."""

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count the time of the block."""
        self._since = began = time.monotonic()
        try:
            yield
        finally:
            self._since = None
            self.was_slow = time.monotonic() - began > STALLED_SECONDS / 2

    @property
    def is_stalled(self) -> bool:
        """Whether a block has lasted longer than `STALLED_SECONDS`."""
        since = self._since
        return since is not None and time.monotonic() - since > STALLED_SECONDS
