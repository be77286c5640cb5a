"""The loader: a thread that moves requests from the spool into the store and derives their rows.

One transaction writes the rows and the spool position up to which they were read. So a crash
neither loses nor repeats a row, and a span that was sent twice is stored once. Large transactions
cost less per row: under load the loader waits up to half a second for more requests. The loader
decides when DuckDB writes a checkpoint, because a commit has to wait for it.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeVar

from otel_lightning.collector.alarms import RETAINING, STORING, Alarms
from otel_lightning.collector.files.overwrite import overwrite
from otel_lightning.collector.load.batches import load
from otel_lightning.collector.load.checkpoints import Checkpoints
from otel_lightning.collector.load.deriving import Deriving
from otel_lightning.collector.load.failures import Failures
from otel_lightning.collector.load.flow_control.lag import Lag
from otel_lightning.collector.load.queued_work import WorkQueue, result_of
from otel_lightning.collector.load.read_ahead import (
    BATCH_BYTES,
    ReadAhead,
    as_requests,
    size_of,
)
from otel_lightning.collector.load.recovered_requests import RecoveredRequests
from otel_lightning.collector.load.resume import move_to, resume
from otel_lightning.collector.load.retention import Retention, newest_received
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.load.store_file import StoreFile
from otel_lightning.collector.load.trusted_clock import TrustedClock
from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.refresh.refresher import Refresher
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.spool.folder import SET_ASIDE
from otel_lightning.collector.spool.format import Position, Record, segment_path, segments_of
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import ROW_GROUP_ROWS, BrokenStoreError, OutOfMemoryError, Store
from otel_lightning.collector.store.deduplication.kept_filters import Kept, are_worth_keeping
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 0.5  # longest wait for a larger batch
FILLING_ROWS, FILL_SECONDS = ROW_GROUP_ROWS // 3, 1.25
"""Batches of at least `FILLING_ROWS` rows wait until they fill a row group of DuckDB, or until the
oldest row is `FILL_SECONDS` old. A full group is compressed and written once; the rows of a partial
one are written again at the next checkpoint. At this rate, a third of a group per
`INTERVAL_SECONDS`, a group is full within three intervals."""
GATHER_SECONDS = 0.05  # how often that wait looks at the spool
IDLE_SECONDS = 5.0  # without requests, after which a checkpoint is written
KEEP_EVERYTHING = LoaderSettings()
Result = TypeVar("Result")


class Loader(threading.Thread):
    """Reads the spool, stores its durable requests, and keeps the derived tables up to date."""

    def __init__(
        self,
        store: Store,
        spool: Spool,
        settings: LoaderSettings = KEEP_EVERYTHING,
        alarms: Alarms | None = None,
    ) -> None:
        super().__init__(name="loader")
        self._alarms = alarms or Alarms()
        self._store, self._spool, self._settings = store, spool, settings
        self._file = StoreFile(store)
        self.seen_ids = SeenIds(store)
        self._refresher = Refresher(store, settings.workers, spool.arrived.set)
        self._read_ahead = ReadAhead(spool)
        self._stopping = threading.Event()
        self._failures = Failures(self._alarms, store.path, self._stopping)
        self._checkpoints = Checkpoints(store, self._alarms, self._refresher.await_sent)
        clock = TrustedClock(spool.folder, newest_received(store))
        self.retention = Retention(store, settings, clock)
        self._queue = WorkQueue()
        self.position = resume(store, spool)
        spool.forget(self.position)  # what a former process stored is no backlog
        self.recovered_requests = RecoveredRequests(self.position, spool.end)
        if spool.backlog():
            spool.arrived.set()
        self.lag = Lag(spool, settings, self._alarms)
        spool.backpressure, spool.alarms = self.lag, self._alarms
        self._deriving = Deriving(self._refresher, settings, self.lag, self._alarms, self._note_lag)
        self._note_lag()

    @property
    def worker_restarts(self) -> int:
        """Number of deriving worker processes that died and were replaced since the start."""
        return self._refresher.pool.restarts

    @property
    def derive_retries(self) -> int:
        """How often the same traces were given up since they were derived last."""
        return self._refresher.retries

    @property
    def worker_watch(self) -> BackgroundThread:
        """The thread that kills worker processes that do nothing; it may not be started yet."""
        return self._refresher.pool.watch

    @property
    def ids_to_read(self) -> int:
        """Number of stored rows whose ids are still read, as after a crash; 0 once they are."""
        return self.seen_ids.to_read

    @property
    def repeated_ids(self) -> int:
        """Number of spans not stored since the start because another span has their ids."""
        return self.seen_ids.repeated

    def restore(self, kept: Kept) -> None:
        """Take over what the process before knew about the stored rows; call it before `start`."""
        self.seen_ids.restore(kept.filters)
        if kept.traces and self._settings.derive:
            recent_traces(self._store).older.restore(kept.traces)

    def kept(self) -> Kept:
        """Return what the next process can take over; call it after the thread has ended."""
        filters, traces = self.seen_ids.filters, b""
        # Without deriving it is not recorded since when spans come late.
        if self._settings.derive and are_worth_keeping(filters):
            recent = recent_traces(self._store)
            recent.make_older()
            traces = recent.older.to_bytes()
        return Kept(filters, traces)

    def run(self) -> None:
        """Store and derive until `stop` is called, then once more for the rest."""
        with suppress(BrokenStoreError):  # the alarm says it; the supervisor ends the process
            self._run_until_stopped()
            self._attempt(idle=False)
        self._refresher.close()

    def _run_until_stopped(self) -> None:
        while not self._stopping.is_set():
            patience = INTERVAL_SECONDS if self._deriving.is_postponed else IDLE_SECONDS
            idle = not (self._spool.arrived.wait(timeout=patience) or self._deriving.is_postponed)
            # Cleared before the spool is read: a request that arrives meanwhile sets it again and
            # is not missed.
            self._spool.arrived.clear()
            self._attempt(idle=idle)
            self._gather()

    def _gather(self) -> None:
        """Wait up to half a second for a full batch, which fills a row group."""
        until = time.monotonic() + INTERVAL_SECONDS
        while self._spool.backlog() < BATCH_BYTES and time.monotonic() < until:
            # A worker process has answered: its rows wait to be inserted.
            if self._refresher.is_ready:
                return
            if self._stopping.wait(GATHER_SECONDS):
                return

    def run_between_batches(self, work: Callable[[Store], Result]) -> Result:
        """Run `work` in the loader's thread between two batches, and wait for its result.

        Call it from another thread. An exception in `work` is raised in the calling thread.

        Raises:
            StoreError: If the loader's thread ends before it has run `work`.
        """
        future = self._queue.add(work)
        self._spool.arrived.set()
        return result_of(future, self.is_alive)

    def empty_spool(self) -> None:
        """Store what was received until now, and erase it from the spool.

        Requests that are received meanwhile stay on the spool. Call it in the loader's thread only,
        so in work of `run_between_batches`.
        """
        start, folder = self._spool.begin_segment(), self._spool.folder
        with ExitStack() as files:
            opened = [
                files.enter_context(segment_path(folder, segment).open("r+b"))
                for segment in segments_of(folder)
                if segment < start.segment
            ]
            while self.position < start and self._load_some(0):
                pass
            if self.position < start:  # at the end of the segment before
                move_to(self._store, start)
                self.position = start
                self._spool.forget(start)
            for file in opened:  # deleted by now
                overwrite(file.fileno())

    def derive_all(self, *, with_quarantined: bool = False) -> None:
        """Derive all that is stale. Call it in the loader's thread only, as `empty_spool`.

        Args:
            with_quarantined: Whether to derive also traces on which workers died; another one may.
        """
        self._deriving.derive_all(with_quarantined=with_quarantined)

    def _run_queued(self) -> None:
        for queued in self._queue.take_all():
            # The work may change rows that a worker process derives from at this moment.
            self._refresher.give_up()
            try:
                self._file.check()
                result = queued.work(self._store)
                self._file.note()
                queued.result.set_result(result)
            except BrokenStoreError as error:  # this thread cannot go on
                queued.result.set_exception(error)
                raise
            except Exception as error:  # noqa: BLE001  it is raised in the calling thread
                queued.result.set_exception(error)

    def stop(self, seconds: float | None = None) -> None:
        """Store all durable requests, update the derived tables, and end the thread.

        Args:
            seconds: Longest wait for its end, after which it is still alive; None has no limit.
        """
        self._stopping.set()
        self._spool.arrived.set()
        self.join(seconds)

    def _attempt(self, *, idle: bool) -> None:
        least_rows = 0 if self._stopping.is_set() else ROW_GROUP_ROWS
        self._run_queued()
        with self._failures.as_alarm(STORING):
            # First store all that waits, even a single row, unless a row group is full soon. After
            # that store only full row groups, and derive in between.
            self._load_some(least_rows if self._fills_soon() else 0)
            self._derive_due()
            while self._load_some(least_rows) or self._derive():
                self._derive_due()
                # Here too, since under steady load this loop goes on and on.
                self._run_queued()
                self._retain()
            if self._spool.backlog():
                self._spool.arrived.set()  # the rest is stored half a second later, with more
            self._retain()
            if idle:
                self._checkpoints.write()

    def _derive_due(self) -> None:
        """Derive for the time that storing owes; otherwise storing would take all of it."""
        while self._deriving.time_share.is_deriving_due and self._derive():
            pass
        self._deriving.time_share.reset()

    def _note_lag(self) -> None:
        unstored_ns = self._read_ahead.oldest_ns(self.position)
        put_off = self._refresher.backoff.put_off(self._settings.max_lag_seconds)
        self.lag.note(self._store, put_off, unstored_ns)

    def _derive(self) -> bool:
        """Derive some rows; after an error storing continues, and deriving is retried later."""
        with self._failures.as_alarm("deriving", clears=False):
            is_busy = self._deriving.step(paced=not self._stopping.is_set())
            if self._deriving.has_succeeded and not self._refresher.quarantine.holds_traces:
                self._alarms.clear("deriving")
            return is_busy
        return False

    def _retain(self) -> None:
        if self.retention.is_due:
            with self._failures.as_alarm(RETAINING):
                # Otherwise rows of a trace that is deleted here would come back from a worker.
                self.retention.run(spared=self._refresher.traces_in_flight())

    def _fills_soon(self) -> bool:
        """Return whether the rows that wait will fill a row group before the oldest is too old."""
        if self._read_ahead.rows(self.position) < FILLING_ROWS:
            return False
        return self.lag.age(self._read_ahead.oldest_ns(self.position)) < FILL_SECONDS

    def _load_some(self, least_rows: int) -> bool:
        """Store a batch of at least `least_rows` rows or `BATCH_BYTES`; return whether it did."""
        self._file.check()
        records = self._read_ahead.take(self.position, least_rows)
        if not records:
            return False
        try:
            self._store_batch(records)
        except BaseException:
            self._read_ahead.clear()  # the spool is read again, from the stored position
            raise
        return True

    def _load(self, records: list[Record], end: Position) -> None:
        """Store the requests of records and the position `end`; empties the list."""
        load(
            self._store,
            as_requests(records),
            self.seen_ids,
            limits=self._settings.limits,
            end=end,
            dead_letters=self._spool.folder / SET_ASIDE,
            derives=self._settings.derive,
        )

    def _store_batch(self, records: list[Record]) -> None:
        """Store the requests of records, and pass the new position and the time to all parts."""
        began = time.monotonic()
        end, size = records[-1].end, size_of(records)
        rows = sum(record.rows for record in records)
        recovered = self.recovered_requests.count(records)
        try:
            self._load([*records], end)
        except OutOfMemoryError:
            logger.warning("A batch does not fit --memory: it is stored with more memory, once")
            with self._store.with_more_memory():
                self._load(records, end)
        self.recovered_requests.note_stored(recovered, end)
        self.position = end
        self._checkpoints.stored(size, rows)
        # Only after the commit: until then the spool has the only copy.
        self._file.check()
        self._spool.forget(end)
        seconds = time.monotonic() - began
        self._note_lag()
        self.lag.stored(size, seconds)
        self._deriving.time_share.stored(seconds)
