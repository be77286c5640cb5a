"""A lock that says which runs use the ingester of a store.

A run ends the ingester that it has started. If other runs of the same store use it too, their
spans and journals would be refused from then on, so its owner waits until they have ended.
"""

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from otel_lightning.learner.file_lock import locked_alone, opened_lock
from otel_lightning.learner.rollout_runner.plan import runs_folder

LOCK = "ingester-users.lock"
POLL_SECONDS = 0.1
MESSAGE_SECONDS = 1.0
"""Shortest wait that is reported."""


@dataclass(frozen=True, slots=True)
class IngesterUsers:
    """The lock: each run that uses an ingester shares it, and its owner waits to have it alone."""

    store: Path
    _file: IO[bytes]

    def join(self) -> None:
        """Use the ingester from now on; wait first while its owner ends it."""
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Do not use it any more."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def wait_for_others(self) -> None:
        """Wait until no other run uses the ingester, and keep new ones waiting in `join`.

        New ones wait until the lock is closed, so end the ingester before. The user may end the
        wait by SIGINT (Ctrl+C).
        """
        began, is_reported = time.monotonic(), False
        try:
            while not locked_alone(self._file):
                if not is_reported and time.monotonic() - began > MESSAGE_SECONDS:
                    sys.stderr.write(
                        f"Waiting: another run of '{self.store}' uses the lightning-ingest that "
                        "this run has started. Ctrl+C ends it now; the other run would fail.\n"
                    )
                    is_reported = True
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            return


@contextmanager
def users_of_ingester(store: Path) -> Iterator[IngesterUsers]:
    """Open the lock, a file in the folder `STORE.runs`; it is released at the end of the block.

    Args:
        store: Path of the store.
    """
    with opened_lock(runs_folder(store) / LOCK) as file:
        yield IngesterUsers(store, file)
