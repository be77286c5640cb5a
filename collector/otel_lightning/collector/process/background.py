"""Background threads: a failure in one is counted and logged, and the thread goes on."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)
STOP_SECONDS = 1.0


class BackgroundThread(threading.Thread):
    """A thread that looks at something again and again; subclasses define `look`.

    An error that is no `Exception`, such as `SystemExit`, still ends it: so the caller that starts
    it has to watch `has_died`.
    """

    def __init__(self, name: str, seconds: float) -> None:
        """Prepare the thread; `start()` runs it.

        Args:
            name: Its name in messages.
            seconds: Time between two looks.
        """
        super().__init__(name=name, daemon=True)
        self._seconds = seconds
        self._stopping = threading.Event()
        self.failures = 0
        """Number of errors after which it went on."""
        self._has_ended = False

    def look(self) -> None:
        """Do the work of the thread once."""
        raise NotImplementedError

    def look_until_stopped(self) -> None:
        """Look every few seconds, and go on after an error."""
        while not self._stopping.wait(self._seconds):
            with self.surviving():
                self.look()

    def stop(self) -> None:
        """End the thread, if it was started; wait little, as its disk may hang."""
        self._stopping.set()
        if self.ident is not None:
            self.join(STOP_SECONDS)

    def run(self) -> None:
        """Look until the thread is stopped."""
        self.look_until_stopped()
        self._has_ended = True

    @property
    def has_died(self) -> bool:
        """Whether the thread was started, and ended by an error."""
        return self.ident is not None and not self.is_alive() and not self._has_ended

    @contextmanager
    def surviving(self) -> Iterator[None]:
        """Count and log an exception in the block instead of raising it."""
        try:
            yield
        except Exception:  # whatever it is: without this thread nobody would look any more
            self.failures += 1
            if self.failures == 1:
                logger.exception(
                    "The thread '%s' failed, and goes on. Later failures are only counted, as "
                    "lightning_thread_failures in /metrics.",
                    self.name,
                )
