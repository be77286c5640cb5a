"""Derive in this process, or in several worker processes at once.

Only this process reads and writes the store. It picks stale traces, sends their spans to a worker,
follows the keys that come back, sends the traces that they lead to, and at last replaces the rows.
Batches in flight have no trace in common. If the keys of one lead into another, the later one is
given up and picked again when the earlier one is done: until its rows are replaced, a trace stays
stale.
"""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from otel_lightning.collector.derive.batches.tied_keys import TiedKeys
from otel_lightning.collector.refresh.backoff import Backoff
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet, size_new
from otel_lightning.collector.refresh.logs_without_trace import refresh_logs_without_trace
from otel_lightning.collector.refresh.refresh import SPANS_AT_ONCE, refresh_with_more_memory
from otel_lightning.collector.refresh.sent_batches import SentBatch, SentBatches
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.refresh.workers.pool import WAIT_SECONDS, WorkerPool
from otel_lightning.collector.refresh.workers.quarantine import MOST_DEATHS, Quarantine
from otel_lightning.collector.refresh.workers.worker import Worker, WorkerDiedError, WorkerError
from otel_lightning.collector.refresh.write_rows import replace_rows
from otel_lightning.collector.store import OutOfMemoryError, Sql, Store, statement

logger = logging.getLogger(__name__)

LEAST_SPANS = 2_000
"""Fewer stale spans are derived in this process, also if workers run."""
START_TIMES = 5
"""The first worker is started when `START_TIMES * LEAST_SPANS` spans wait. Its start takes a third
of a CPU-second, more than it would save in a short burst."""
SPANS_A_TRACE = 20
"""Assumed spans of a trace that was not looked at yet."""
IDLE_SECONDS = 60.0
"""Time without a batch after which the workers are ended."""
HELD = Sql("(FROM held)")
"""The traces and rollouts not to pick: those in batch, and those that wait."""


class Step(NamedTuple):
    """The result of one step."""

    ids: int
    """Number of traces and log records that were derived."""
    seconds: float
    """Cost: the time of this process, and of the workers divided by their number."""
    is_busy: bool
    """Whether the step did anything."""
    batch_seconds: float
    """Time from the beginning to the end of the batch that was derived last."""


class Refresher:
    """Keeps the derived tables of one store current; use it from one thread."""

    def __init__(
        self, store: Store, workers: int = 1, wake: Callable[[], object] = lambda: None
    ) -> None:
        """Start no process yet: workers are started as they are needed.

        Args:
            store: A direct store.
            workers: Most worker processes; with 0 or 1 this process derives.
            wake: Called from another thread when a worker has answered.
        """
        self._store = store
        self.pool = WorkerPool(store, workers if workers > 1 else 0, wake)
        self._sent = SentBatches(self.pool)
        self._used_at = time.monotonic()
        self._spent = 0.0  # seconds for batches that are not derived yet
        self._deaths = 0
        self._batch_seconds = 0.0
        self.quarantine = Quarantine(store)
        self.backoff = Backoff()

    @property
    def is_working(self) -> bool:
        """Whether batches are in flight, or traces wait for a worker that is being started."""
        return bool(self._sent.batches) or bool(self._awaited)

    def traces_in_flight(self) -> set[str]:
        """Return the ids of the traces that worker processes derive at present."""
        return self._sent.trace_ids()

    @property
    def retries(self) -> int:
        """How often the same traces were given up in flight since they were derived last.

        A few times are normal, because batches that belong together give way to each other.
        """
        return self._sent.most_retries

    @property
    def is_ready(self) -> bool:
        """Whether a worker has answered."""
        expected = [batch.worker for batch in self._sent.batches]
        return any(worker.is_ready for worker in (*expected, *self._awaited))

    def wait(self, seconds: float = WAIT_SECONDS) -> bool:
        """Wait until a worker has answered; return False if none is at work."""
        self.pool.wait(seconds if self.is_working and not self.is_ready else 0.0)
        return self.is_working

    def step(self, spans_at_once: int = SPANS_AT_ONCE, *, paced: bool = True) -> Step:
        """Do what can be done without waiting for a worker.

        Args:
            spans_at_once: About how many spans to derive in one batch.
            paced: Whether growing rollouts wait, as `backoff` says.
        """
        began, restarts = time.monotonic(), self.pool.restarts
        # A new `Backoff` knows no rollout, so nothing waits.
        backoff = self.backoff if paced else Backoff()
        # Batches in flight are brought to their end, also when little is stale by now.
        if not self._sent.batches and not self._has_workers():
            ids = refresh_with_more_memory(self._store, spans_at_once, backoff)
            self._sent.forget_retries()  # here no batch gives way to another
            self.quarantine.forget_derived()
            seconds = time.monotonic() - began
            return Step(ids, seconds, ids > 0, seconds)
        try:
            # A copy, because batches that end are removed from the list.
            ids = sum(
                self._advance(one, backoff) for one in [*self._sent.batches] if one.worker.is_ready
            )
            ids += refresh_logs_without_trace(self._store)
            is_sent = self._send_some(spans_at_once, backoff)
        # One batch needs more than --memory, or breaks deriving: derive it alone, here.
        except (OutOfMemoryError, WorkerError):
            self.give_up()
            ids, is_sent = refresh_with_more_memory(self._store, spans_at_once, backoff), False
        self._spent += time.monotonic() - began
        # Summed up until a step derives something, because reading and sending are a part of its
        # cost.
        spent = self._spent
        if ids:
            self._spent = 0.0
        # After a death there is something to do, though perhaps no worker is left for it now.
        is_busy = ids > 0 or is_sent or self.pool.restarts > restarts
        return Step(ids, spent, is_busy, self._batch_seconds)

    def start(self) -> None:
        """Start all workers and wait until they are ready."""
        self.pool.start_all()

    def prepare(self, spans_at_once: int) -> int:
        """Start workers for what is stale now, as many as have enough to do, and wait for them.

        Otherwise this process would derive until the first one has started, and start one after the
        other.

        Args:
            spans_at_once: Most spans to derive in one batch.

        Returns:
            How many spans to derive in one batch, so that each worker gets one.
        """
        with self._store.transaction():
            size_new(self._store)
        waiting = self._count_waiting()
        if not self.pool.most or waiting < START_TIMES * LEAST_SPANS:
            return spans_at_once
        count = min(self.pool.most, waiting // LEAST_SPANS)
        self.pool.start_some(count)
        return min(spans_at_once, -(-waiting // count))

    def await_sent(self) -> None:
        """Wait until no other thread reads spans for a worker."""
        for batch in self._sent.batches:
            batch.worker.await_sent()

    def give_up(self) -> None:
        """Give up all batches in flight; their traces stay stale."""
        self._sent.give_up()

    def close(self) -> None:
        """End all workers."""
        self.pool.watch.stop()
        self._end_all()

    def _end_all(self) -> None:
        self.give_up()
        self.pool.end_all()

    def _has_workers(self) -> bool:
        """Return whether so much is stale that workers derive, and one of them has started.

        Until one has, this process derives; if none is needed for long, all are ended. Traces on
        which a worker died are left to workers: they may take so much memory that the system would
        kill this process, too.
        """
        if not self.pool.most:
            return False
        waiting = self._count_waiting()
        is_for_workers = bool(self._awaited) or (self.quarantine.has_deaths and self.pool.may_start)
        if waiting < LEAST_SPANS and not is_for_workers:
            if time.monotonic() - self._used_at > IDLE_SECONDS:
                self._end_all()
            return False
        self._used_at = time.monotonic()
        self.pool.take_started()
        is_needed = is_for_workers or waiting >= START_TIMES * LEAST_SPANS
        if is_needed and not self.pool.idle and not self.pool.starting:
            self.pool.try_to_start_one()
        return bool(self.pool.idle or self._awaited)

    def _count_waiting(self) -> int:
        """Return about how many spans the stale traces have."""
        query = statement(__package__, "count_stale", each=SPANS_A_TRACE)
        return int(self._store.query(query)["n"][0].as_py())

    @property
    def _awaited(self) -> list[Worker]:
        """The workers that are being started, if traces wait for one of them."""
        return self.pool.starting if self.quarantine.has_deaths else []

    def _advance(self, batch: SentBatch, backoff: Backoff) -> int:
        """Go on with a batch whose worker has answered; return how many traces were derived."""
        try:
            if batch.is_asked_for_rows:
                return self._replace_rows(batch, backoff)
            self._follow(batch, batch.worker.keys())
        except WorkerDiedError as error:
            self._note_death(batch, error)
        except BaseException:
            # Another thread read the spans, outside of a transaction that would clear this.
            recent_traces(self._store).clear()
            # The worker may be in the middle of an answer, so it cannot be used again.
            self._sent.end(batch)
            raise
        return 0

    def _note_death(self, batch: SentBatch, error: WorkerDiedError) -> None:
        self._sent.note_death(batch)
        self._deaths += 1
        self.pool.restarts += 1
        if not self.quarantine.holds_traces:
            logger.warning("%s It is replaced, and its batch is derived again.", error)
        self.quarantine.note_death(batch.names)
        # Nobody would notice, because other batches may be derived.
        if self._deaths >= MOST_DEATHS or self.quarantine.holds_traces:
            raise error

    def _follow(self, batch: SentBatch, keys: TiedKeys) -> None:
        if batch.is_given_up:
            # The worker itself is fine: its answer has been read, so it is free for another batch.
            self._sent.put_back(batch)
            return
        closed = batch.closed
        with self._store.transaction():
            closed.follow(keys)
            if closed.has_to_wait() or self._sent.has_to_wait(batch):
                self._sent.put_back(batch)
                return
            batch.go_on()

    def _replace_rows(self, batch: SentBatch, backoff: Backoff) -> int:
        replaced = replace_rows(self._store, batch.closed, batch.worker.rows())
        self._sent.finish(batch)
        self.quarantine.forget_derived()
        self._deaths = 0
        self._batch_seconds = time.monotonic() - batch.sent
        # All workers run at once, so a batch costs its share of their time.
        self._spent += batch.worker.seconds / self.pool.most
        backoff.note(batch.worker.sizes, batch.began)
        return replaced

    def _send_some(self, spans_at_once: int, backoff: Backoff) -> bool:
        """Send new batches to idle workers; return whether there was one."""
        is_sent = False
        spans_at_once = self.quarantine.batch_size(spans_at_once)
        self.pool.take_started()
        while self.pool.idle and self._send(spans_at_once, backoff):
            is_sent = True
        is_more = is_sent and not self.pool.idle and not self.pool.starting
        if is_more and len(self._sent.batches) < self.pool.most:
            self.pool.try_to_start_one()
        return is_sent

    def _send(self, spans_at_once: int, backoff: Backoff) -> bool:
        waiting = backoff.waiting()
        held = self._sent.held() | self.quarantine.held()
        with self._store.transaction():
            self._store.execute("CREATE OR REPLACE TEMP TABLE held (name VARCHAR)")
            self._store.insert("held", pa.table({"name": pa.array([*held, *waiting], pa.string())}))
            size_new(self._store, HELD)
            closed = ClosedSet(self._store, spans_at_once, waiting, HELD)
            if closed.is_complete():
                if not held:  # nothing is left: what was given up was derived, or erased
                    self._sent.forget_retries()
                    self.quarantine.clear()
                return False
            names = set(closed.names())
            worker = self.pool.take()
            batch = SentBatch(worker, closed, backoff.clock(), time.monotonic(), names)
            # Before anything is sent: a worker that reads nothing is found among the batches, and
            # killed.
            self._sent.batches.append(batch)
            try:
                worker.begin()
                batch.go_on()
            except BaseException:
                self._sent.end(batch)  # it may be in the middle of a question
                raise
        return True
