"""The worker processes of one `Refresher`: started when they are needed, ended when none is."""

import logging
import threading
import time
from collections.abc import Callable

from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.refresh.workers.worker import Worker, WorkerDiedError
from otel_lightning.collector.refresh.workers.worker_watch import WorkerWatch
from otel_lightning.collector.store import Store

logger = logging.getLogger(__name__)

START_AGAIN_SECONDS = 60.0
"""Wait after the death of a worker that had not started."""
WAIT_SECONDS = 0.5


class WorkerPool:
    """Worker processes: each is being started, idle, or busy with a batch."""

    def __init__(self, store: Store, most: int, wake: Callable[[], object]) -> None:
        """Start no process yet.

        Args:
            store: A direct store.
            most: Most worker processes.
            wake: Called from another thread when a worker has answered.
        """
        self._store, self.most, self._wake = store, most, wake
        self._answered = threading.Event()
        self.starting: list[Worker] = []
        self.idle: list[Worker] = []
        self._busy: list[Worker] = []
        self.restarts = 0
        """Number of workers that died and were replaced."""
        self.lacks_room = False
        """Whether the system had no room for another process at the last try."""
        self._start_at = 0.0  # earliest start of the next worker
        self.watch = WorkerWatch(self._at_work)
        """The thread that kills workers that do nothing; it starts with the first of them."""

    @property
    def may_start(self) -> bool:
        """Whether a worker can be started, as far as is known."""
        return not self.lacks_room and time.monotonic() >= self._start_at

    def wait(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until a worker has answered since the last call."""
        self._answered.wait(seconds)
        self._answered.clear()

    def start_all(self) -> None:
        """Start all workers and wait until they are ready."""
        while len(self.starting) + len(self.idle) < self.most:
            self._start_one()
        self._await_started()

    def start_some(self, count: int) -> None:
        """Start workers if the system has room for them, and wait until they are ready."""
        for _ in range(count):
            self.try_to_start_one()
        self._await_started()

    def _await_started(self) -> None:
        while self.starting:
            self.take_started()
            self.wait()

    def try_to_start_one(self) -> None:
        """Start a worker if the system has room for it; otherwise go on with those that run."""
        if time.monotonic() < self._start_at:
            return
        try:
            self._start_one()
        except (OSError, RuntimeError) as error:
            if not self.lacks_room:
                self.lacks_room = True
                logger.warning(
                    "A worker process cannot be started (%s). Deriving goes on with fewer of them, "
                    "or in this process, and starting one is tried again.", error,
                )  # fmt: skip
        else:
            self.lacks_room = False

    def take_started(self) -> None:
        """Take the workers that are ready for the first time into service."""
        for worker in [one for one in self.starting if one.is_ready]:
            self.starting.remove(worker)
            try:
                worker.started()
            except WorkerDiedError as error:
                worker.end()
                self.restarts += 1
                self._start_at = time.monotonic() + START_AGAIN_SECONDS
                logger.warning(
                    "%s It had not started yet. Deriving goes on with fewer of them, or in this "
                    "process; starting one is tried again after %g seconds.",
                    error, START_AGAIN_SECONDS,
                )  # fmt: skip
            else:
                self.idle.append(worker)

    def take(self) -> Worker:
        """Take an idle worker for a batch; give it back by `release` or `end`."""
        worker = self.idle.pop()
        self._busy.append(worker)
        return worker

    def release(self, worker: Worker) -> None:
        """Count a worker as idle: its batch is done, and it has answered."""
        self._busy.remove(worker)
        self.idle.append(worker)

    def end(self, worker: Worker) -> None:
        """End a busy worker."""
        self._busy.remove(worker)
        worker.end()

    def end_all(self) -> None:
        """End all workers."""
        for worker in (*self._busy, *self.idle, *self.starting):
            worker.end()
        self._busy, self.idle, self.starting = [], [], []

    def _start_one(self) -> None:
        if self.watch.ident is None:
            self.watch.start()
        self.starting.append(Worker(schemas(self._store), self._wake_up))

    def _at_work(self) -> list[Worker]:
        # Copies, because another thread asks, and this one changes the lists meanwhile.
        return [*self.starting, *self._busy]

    def _wake_up(self) -> None:
        self._answered.set()
        self._wake()
