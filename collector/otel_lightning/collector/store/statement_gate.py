"""Count the statements that run for clients, and let new ones wait.

Only for moments: while the memory limit is lowered, or another file takes the place of the store's.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from otel_lightning.collector.store.cancellation import Cancellation

WAIT_SECONDS = 30.0
"""Longest wait of a statement for the gate to open."""
WRITE_SECONDS = 600.0
"""Longest wait of a statement that writes, while the file is rewritten."""


class ClosedGateError(Exception):
    """A statement waited for too long; the message says for what."""


class StatementGate:
    """Where each statement of a client passes before it runs."""

    def __init__(self) -> None:
        """Be open."""
        self._changed = threading.Condition()
        self._running: set[Cancellation] = set()
        self._waiting = 0  # statements that have not begun
        self._ended_at = float("-inf")
        self._is_closed = False
        self._is_closed_to_writes = False
        self._turns_away = False

    @contextmanager
    def running(self, cancellation: Cancellation) -> Iterator[None]:
        """Wait until the gate is open, and count a statement as long as the block runs.

        Args:
            cancellation: Ends the statement if somebody cannot wait for its end.

        Raises:
            ClosedGateError: If the gate stays closed for too long.
        """
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._is_closed or self._turns_away, WAIT_SECONDS)
            self._waiting -= 1
            self._changed.notify_all()
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
        """Let no statement begin in the block; yield whether none runs.

        Args:
            seconds: How long to wait for the end of those that run.
        """
        with self._changed:
            # Statements that waited until now begin first. Else a gate that is closed again and
            # again would keep them waiting for ever.
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
        """Let no statement wait until the closed gate opens: each fails at once."""
        with self._changed:
            self._turns_away = True
            self._changed.notify_all()

    @property
    def idle_seconds(self) -> float:
        """Return how long ago the last statement ended."""
        return time.monotonic() - self._ended_at

    def cancel_running(self, reason: str) -> None:
        """End the statements that run, as far as they can be ended."""
        with self._changed:
            running = list(self._running)
        for cancellation in running:
            cancellation.cancel(reason)

    @contextmanager
    def closed_to_writes(self) -> Iterator[None]:
        """Let statements that write wait until the block ends."""
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
            ClosedGateError: If that takes too long.
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
