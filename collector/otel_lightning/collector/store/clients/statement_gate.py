"""A gate that clients' statements pass before they run, and that can be closed for a moment.

It is closed while DuckDB's memory limit is lowered, and while a rewritten file replaces the store's
file. New statements wait meanwhile.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from otel_lightning.collector.store.clients.cancellation import Cancellation

WAIT_SECONDS = 30.0
"""Longest time that a statement waits for the gate to open."""
WRITE_SECONDS = 600.0
"""Longest time that a statement that writes waits while the file is rewritten."""
STOPPING = (
    "lightning-ingest is stopping, so this statement was ended. Ask again when it is stopped."
)
STOPPING_SECONDS = 3.0
"""Longest wait for the end of the statements that run when the process stops."""
AGAIN_SECONDS = 0.1
"""Pause before a statement that has not ended is cancelled again: it may not have noticed."""


class ClosedGateError(Exception):
    """A statement could not begin; the message tells the client why."""


class StatementGate:
    """Counts the statements that run for clients, and makes new ones wait while it is closed."""

    def __init__(self) -> None:
        """Create an open gate."""
        self._changed = threading.Condition()
        self._running: set[Cancellation] = set()
        self._waiting = 0  # statements that have not begun
        self._ended_at = float("-inf")
        self._is_closed = False
        self._is_closed_to_writes = False
        self._turns_away = False
        self._is_stopping = False

    @contextmanager
    def running(self, cancellation: Cancellation) -> Iterator[None]:
        """Wait until the gate is open, and count a statement as long as the block runs.

        Args:
            cancellation: Cancels the statement, if `cancel_running` is called.

        Raises:
            ClosedGateError: If the gate stays closed for `WAIT_SECONDS`, or `turn_away` or `stop`
                is called.
        """
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._is_closed or self._turns_away, WAIT_SECONDS)
            self._waiting -= 1
            self._changed.notify_all()
            if self._is_stopping:
                raise ClosedGateError(STOPPING)
            if self._is_closed:
                raise ClosedGateError("lightning-ingest was busy with its file. Ask again.")
            self._running.add(cancellation)
        try:
            yield
        finally:
            with self._changed:
                self._running.discard(cancellation)
                self._ended_at = time.monotonic()
                self._changed.notify_all()

    @contextmanager
    def closed(self, seconds: float = 0.0) -> Iterator[bool]:
        """Close the gate for the block; yield whether no statement runs any more.

        Args:
            seconds: Longest wait for the end of the statements that run already.
        """
        with self._changed:
            # Statements that are waiting already begin first. Otherwise, if the gate is closed
            # again and again, they would wait for ever.
            self._changed.wait_for(lambda: not self._waiting, WAIT_SECONDS)
            self._is_closed = True
            is_idle = self._changed.wait_for(lambda: not self._running, seconds)
        try:
            yield is_idle
        finally:
            with self._changed:
                self._is_closed = self._turns_away = False
                self._changed.notify_all()

    def turn_away(self) -> None:
        """Make each statement that waits at the closed gate fail at once, also later ones."""
        with self._changed:
            self._turns_away = True
            self._changed.notify_all()

    @property
    def seconds_since_end(self) -> float:
        """Number of seconds since a statement last ended; infinite if none has.

        Another statement may be running.
        """
        return time.monotonic() - self._ended_at

    def cancel_running(self, reason: str) -> None:
        """Ask the statements that run to stop; some cannot be stopped.

        Args:
            reason: Told to the clients.
        """
        with self._changed:
            running = list(self._running)
        for cancellation in running:
            cancellation.cancel(reason)

    def stop(self) -> None:
        """Let no statement begin any more, and end those that run: this process stops."""
        deadline = time.monotonic() + STOPPING_SECONDS
        with self._changed:
            self._is_stopping = self._turns_away = True
            self._changed.notify_all()
            while self._running and time.monotonic() < deadline:
                for cancellation in self._running:
                    cancellation.cancel(STOPPING)
                self._changed.wait(AGAIN_SECONDS)

    @contextmanager
    def closed_to_writes(self) -> Iterator[None]:
        """Make statements that write wait until the block ends; others pass."""
        with self._changed:
            self._is_closed_to_writes = True
        try:
            yield
        finally:
            with self._changed:
                self._is_closed_to_writes = False
                self._changed.notify_all()

    def wait_to_write(self) -> None:
        """Wait until statements may write.

        Raises:
            ClosedGateError: If that takes longer than `WRITE_SECONDS`, or `turn_away` is called.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: not self._is_closed_to_writes or self._turns_away, WRITE_SECONDS
            )
            if self._is_closed_to_writes:
                raise ClosedGateError(
                    "`lightning-ingest forget` rewrites the store at present, so nothing can be "
                    "written. Try again when it is done."
                )
