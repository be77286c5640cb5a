"""Work that other threads ask the loader to do between two batches."""

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, Generic, NamedTuple, TypeVar

from otel_lightning.collector.store import Store, StoreError

ALIVE_SECONDS = 0.5  # how often a waiting thread checks that the loader's thread still runs
Result = TypeVar("Result")


class QueuedWork(NamedTuple, Generic[Result]):
    """Work, and the future for its result."""

    work: Callable[[Store], Result]
    result: Future[Result]


class WorkQueue:
    """The work that is not done yet."""

    def __init__(self) -> None:
        """Begin without work."""
        self._queue: queue.SimpleQueue[QueuedWork[Any]] = queue.SimpleQueue()

    def add(self, work: Callable[[Store], Result]) -> Future[Result]:
        """Queue work, and return the future for its result."""
        queued = QueuedWork(work, Future())
        self._queue.put(queued)
        return queued.result

    def take_all(self) -> Iterator[QueuedWork[Any]]:
        """Take the queued work, in order, until the queue is empty."""
        while not self._queue.empty():
            yield self._queue.get()


def result_of(future: Future[Result], is_alive: Callable[[], bool]) -> Result:
    """Wait for the result of queued work. An exception of the work is raised here.

    Raises:
        StoreError: If the thread that should do the work ends before it has taken it.
    """
    # The thread may end before it takes the work; then nobody would set the result.
    while not future.done() and is_alive():
        wait([future], timeout=ALIVE_SECONDS)
    if not future.done():
        raise StoreError("lightning-ingest is stopping. Try again when it is stopped.")
    return future.result()
