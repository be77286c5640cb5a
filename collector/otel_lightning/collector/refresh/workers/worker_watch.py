"""Kill worker processes that do nothing, from a thread of its own: the owner may wait for one."""

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
        super().__init__("worker-watch", WATCH_SECONDS)
        self._at_work = at_work

    def look(self) -> None:
        """Kill those that are stalled; an error of one leaves the others."""
        for worker in self._at_work():
            with self.surviving():
                worker.kill_if_stalled()
