"""Batches that worker processes derive at present. No two of them derive the same trace."""

from collections import Counter
from dataclasses import dataclass, field

from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet
from otel_lightning.collector.refresh.workers.pool import WorkerPool
from otel_lightning.collector.refresh.workers.worker import Worker


@dataclass
class SentBatch:
    """A batch in a worker."""

    worker: Worker
    closed: ClosedSet
    began: float
    """When it began, by the clock of `Backoff`."""
    sent: float
    """When it began, by the monotonic clock."""
    names: set[str]
    """The rollouts, or ids of single traces, that were picked."""
    traces: set[str] = field(default_factory=set)
    is_asked_for_rows: bool = False
    """Whether the worker has all traces of the batch, and was asked for their rows."""
    blocked: set[str] = field(default_factory=set)
    """Names of batches that were given up because they belong with this one."""
    is_given_up: bool = False
    """Whether the answer of the worker is not used, because an earlier batch has the traces."""

    def go_on(self) -> None:
        """Send the traces to read next; if none is left, ask for the rows."""
        closed, worker = self.closed, self.worker
        if closed.is_complete():
            self.is_asked_for_rows = True
            worker.ask_rows()
        else:
            closed.mark_read()
            self.traces.update(closed.frontier())
            logs = closed.logs()
            if closed.has_copy:
                worker.read(closed.spans(), logs)
                worker.await_sent()
            else:
                worker.read(closed.spans_apart(), logs)
        closed.suspend()


class SentBatches:
    """The batches in workers, and how often each was given up."""

    def __init__(self, pool: WorkerPool) -> None:
        """Begin with none.

        Args:
            pool: The workers that the batches are sent to.
        """
        self._pool = pool
        self.batches: list[SentBatch] = []
        """In the order in which they began."""
        self._retries: Counter[str] = Counter()  # by the names of batches that were given up

    @property
    def most_retries(self) -> int:
        """How often the same traces were given up since they were derived last."""
        return max(self._retries.values(), default=0)

    def trace_ids(self) -> set[str]:
        """Return the ids of the traces that workers derive."""
        return {trace_id for batch in self.batches for trace_id in batch.traces}

    def held(self) -> set[str]:
        """Return the traces and rollouts that must not be in another batch.

        These are the traces that were read, the rollouts that were picked, and those that wait for
        a batch.
        """
        return {name for one in self.batches for name in (*one.names, *one.traces, *one.blocked)}

    def has_to_wait(self, batch: SentBatch) -> bool:
        """Return whether keys lead into a batch that goes first; this one is picked again after it.

        The batch that began first goes first, so that one always comes to its end. If each waited
        for the other, both could be given up and picked again for ever. A batch whose rows were
        asked for comes to its end in any case, so that it goes first too. All others that the keys
        lead into give way to this one.
        """
        frontier = set(batch.closed.frontier())
        overlapping = [one for one in self.batches if one is not batch and one.traces & frontier]
        began = self.batches.index(batch)
        for other in overlapping:
            if other.is_asked_for_rows or self.batches.index(other) < began:
                other.blocked |= batch.names
                return True
        for other in overlapping:
            batch.blocked |= other.names
            # This batch now reads these traces. The other one is released when its worker answers.
            other.traces.clear()
            other.is_given_up = True
        return False

    def finish(self, batch: SentBatch) -> None:
        """Remove a batch whose rows are written; its worker is idle."""
        self._release(batch)
        for name in batch.names:
            del self._retries[name]

    def put_back(self, batch: SentBatch) -> None:
        """Remove a batch that is not derived; its worker is idle, its traces are picked again."""
        self._retries.update(batch.names)
        self._release(batch)

    def end(self, batch: SentBatch) -> None:
        """Remove a batch and end its worker; its traces are picked again."""
        self.batches.remove(batch)
        self._pool.end(batch.worker)

    def note_death(self, batch: SentBatch) -> None:
        """Remove a batch whose worker died; its traces are picked again."""
        self._retries.update(batch.names)
        self.end(batch)

    def give_up(self) -> None:
        """Remove all batches and end their workers; their traces stay stale."""
        for batch in self.batches:
            self._pool.end(batch.worker)
            self._retries.update(batch.names)
        self.batches = []

    def forget_retries(self) -> None:
        """Forget how often batches were given up."""
        self._retries.clear()

    def _release(self, batch: SentBatch) -> None:
        self.batches.remove(batch)
        self._pool.release(batch.worker)
