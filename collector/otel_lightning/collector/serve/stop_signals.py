"""Signals that ask `lightning-ingest serve` to stop."""

import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_lightning.collector.last_run import Run

DRAIN_SECONDS = 10
INTERRUPTED = 130


class StopSignals:
    """Handles SIGTERM and SIGINT: the first one drains, the second one exits at once.

    Exiting at once is safe, because every acknowledged request is on the spool. The end of the
    terminal (SIGHUP) counts as one of them. Without a terminal SIGHUP does nothing until there are
    certificates to read again: service managers and log rotation send it to ask for that.
    """

    def __init__(self) -> None:
        self.deadline: float | None = None
        """Time until which draining may take, in seconds of `time.monotonic()`; None before the
        first signal."""
        self.exit_code = 0
        """Exit code of the process if it does not end by itself in time."""
        self.then: Callable[[], object] = lambda: None
        """Called by the first signal, in the main thread."""
        self.run: Run | None = None
        """The record of this process for the next one; None until the store is open."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # not started by nohup
            signal.signal(signal.SIGHUP, self._ask if os.isatty(0) else signal.SIG_IGN)

    def _ask(self, _number: int, _frame: object) -> None:
        if self.deadline is not None:
            self.note_end()
            os._exit(INTERRUPTED)
        self.deadline = time.monotonic() + DRAIN_SECONDS
        self.then()

    def note_end(self, error: BaseException | None = None) -> None:
        """Record for the next process that this one ends, and why if nobody has asked it to."""
        if self.run:
            self.run.end(error)

    def seconds_left(self) -> float:
        """Return how many seconds draining may still take."""
        deadline = self.deadline or time.monotonic() + DRAIN_SECONDS
        return max(deadline - time.monotonic(), 0)
