"""End a statement from another thread, for instance because nobody waits for its answer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GONE = "The client has closed its connection, so its statement was ended."


class CancelledError(Exception):
    """The statement is not to run, because it was cancelled before it began."""


class Cancellation:
    """Ends a statement that runs in another thread.

    DuckDB forgets an interruption that comes between two of its steps, so `cancel` may be called
    again until the statement has ended.
    """

    def __init__(self) -> None:
        """Cancel nothing yet."""
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why `cancel` was called; None if it was not."""
        return self._reason

    def cancel(self, reason: str = GONE) -> None:
        """End the statement that runs, and let none begin."""
        with self._lock:
            self._reason = reason
            if self._end:
                self._end()

    @contextmanager
    def by(self, end: Callable[[], None]) -> Iterator[None]:
        """Let `cancel` call a function as long as the block runs, and never after it.

        Args:
            end: Ends what the block runs; it returns at once.

        Raises:
            CancelledError: If `cancel` was called before.
        """
        with self._lock:
            if self._reason:
                raise CancelledError
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None
