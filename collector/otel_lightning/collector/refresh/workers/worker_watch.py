"""Kill worker processes that do nothing, from a thread of its own: the owner may wait for one."""

import threading
from collections.abc import Callable, Iterable

from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.refresh.workers.worker import Worker

WATCH_SECONDS = 5.0
"""How often to look."""


class WorkerWatch(BackgroundThread):
    """A thread that kills workers that owe an answer and do nothing."""

    def __init__(self, at_work: Callable[[], Iterable[Worker]]) -> None:
        """Prepare the thread; `start()` runs it.

        Args:
            at_work: Returns the workers that may owe an answer.
        """
        super().__init__("worker-watch")
        self._at_work = at_work
        self._stopping = threading.Event()

    def look_until_stopped(self) -> None:
        """Look every `WATCH_SECONDS`."""
        while not self._stopping.wait(WATCH_SECONDS):
            for worker in self._at_work():
                with self.surviving():
                    worker.kill_if_stalled()

    def stop(self) -> None:
        """End the thread, if it was started."""
        self._stopping.set()
        if self.ident is not None:
            self.join()
