"""Alarms for what fails in the loader's thread, which continues nevertheless."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.spool.faults import store_fault
from otel_lightning.collector.store import BrokenStoreError, StoreError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Wait after an error."""
RESTART = (
    "lightning-ingest has to be started again: once the disk takes writes it ends with exit code 1,"
    " for its supervisor; what was acknowledged is on the spool"
)
REASON_LENGTH = 300
"""Characters of an error that an alarm repeats."""


class Failures:
    """Turns exceptions into alarms, and waits a moment after each."""

    def __init__(self, alarms: Alarms, store: Path | None, stopping: threading.Event) -> None:
        """Begin without a failure.

        Args:
            alarms: Gets the alarms.
            store: Path of the store; None for a store without one.
            stopping: Ends each wait.
        """
        self._alarms, self._store, self._stopping = alarms, store, stopping

    @contextmanager
    def as_alarm(self, alarm: str, *, clears: bool = True) -> Iterator[None]:
        """Raise an alarm if the block raises any exception.

        The loader continues: acknowledged requests stay on the spool and are retried.

        Args:
            alarm: Its name.
            clears: Whether to clear it if the block raises none.

        Raises:
            BrokenStoreError: If only a restart of the process helps. First it waits until the
                store's disk takes writes.
        """
        try:
            yield
        except BrokenStoreError as error:
            self._alarms.raise_alarm(alarm, f"{_in_one_line(error)}. {RESTART}")
            self._wait_for_disk()
            raise
        except Exception as error:  # if the thread ended, nothing would be stored any more
            is_expected = isinstance(error, StoreError | OSError)  # the alarm says enough of it
            if not (is_expected or self._alarms.is_raised(alarm)):
                logger.exception("%s failed; it is tried again", alarm.capitalize())
            self._alarms.raise_alarm(alarm, _in_one_line(error))
            self._stopping.wait(RETRY_SECONDS)
        else:
            if clears:
                self._alarms.clear(alarm)

    def _wait_for_disk(self) -> None:
        """Wait until the store's disk takes writes: a restart before that would not help.

        Meanwhile requests are received, as long as the spool's disk takes them.
        """
        path = self._store
        while path and store_fault(path) and not self._stopping.wait(RETRY_SECONDS):
            pass


def _in_one_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]
