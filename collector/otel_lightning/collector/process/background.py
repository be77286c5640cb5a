"""Background threads: a failure in one is counted and logged, and the thread goes on."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class BackgroundThread(threading.Thread):
    """A thread that looks at something again and again; subclasses define `look_until_stopped`.

    Whoever starts it watches `has_died`: an error that is no `Exception` ends it in spite of all.
    """

    def __init__(self, name: str) -> None:
        """Prepare the thread; `start()` runs it."""
        super().__init__(name=name, daemon=True)
        self.failures = 0
        """Number of errors after which it went on."""
        self._has_ended = False

    def look_until_stopped(self) -> None:
        """Do the work of the thread, each look in a block of `surviving`."""
        raise NotImplementedError

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
