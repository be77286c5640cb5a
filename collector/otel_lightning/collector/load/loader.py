"""The loader: a thread that moves requests from the spool into the store and derives their rows.

One transaction writes the rows and the spool position up to which they were read. So a crash
neither loses nor repeats a row, and a span that was sent twice is stored once. Large transactions
cost less per row: under load the loader waits up to half a second for more requests. The loader
decides when DuckDB writes a checkpoint, because a commit has to wait for it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

from otel_lightning.collector.alarms import RETAINING, RETRYING, STORING, Alarms
from otel_lightning.collector.files.overwrite import overwrite
from otel_lightning.collector.load.batches import load
from otel_lightning.collector.load.checkpoints import Checkpoints
from otel_lightning.collector.load.flow_control.lag import Lag
from otel_lightning.collector.load.flow_control.scheduling import BatchSize, TimeShare
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
from otel_lightning.collector.spool.faults import store_fault
from otel_lightning.collector.spool.folder import SET_ASIDE
from otel_lightning.collector.spool.format import Record, segment_path, segments_of
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import ROW_GROUP_ROWS, BrokenStoreError, Store, StoreError
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.5  # longest wait for a larger batch
GATHER_SECONDS = 0.05  # how often that wait looks at the spool
RETRY_SECONDS = 1.0  # wait after an error
IDLE_SECONDS = 5.0  # without requests, after which a checkpoint is written
RESTART = (
    "lightning-ingest has to be started again: once the disk takes writes it ends with exit code 1,"
    " for its supervisor; what was acknowledged is on the spool"
)
REASON_LENGTH = 300  # characters of an error that an alarm repeats
PROMPT_SECONDS = 2.0  # of lag; above it deriving starts at once, without waiting for more spans
MOST_RETRIES = 25  # of the same traces; batches that give way to each other need a few
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
        self._file = StoreFile(store.path)
        self.seen_ids = SeenIds(store)
        self._refresher = Refresher(store, settings.workers, spool.arrived.set)
        self._read_ahead = ReadAhead(spool)
        self._stopping = threading.Event()
        self._checkpoints = Checkpoints(store, self._alarms, self._refresher.await_sent)
        self._derive_at = 0.0  # earliest time of the next deriving while it keeps up
        self._postponed = False  # whether deriving has to run soon even if no request arrives
        self._derives_again = False  # whether the last step derived something, or nothing was left
        clock = TrustedClock(spool.folder, newest_received(store))
        self.retention = Retention(store, settings, clock)
        self._queue = WorkQueue()
        self._time_share = TimeShare()
        self._batch_size = BatchSize(settings.spans_at_once)
        self.position = resume(store, spool)
        spool.forget(self.position)  # what a former process stored is no backlog
        self.recovered_requests = RecoveredRequests(self.position, spool.end)
        if spool.backlog():
            spool.arrived.set()
        self.lag = Lag(spool, settings, self._alarms)
        spool.backpressure, spool.alarms = self.lag, self._alarms
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

    def run(self) -> None:
        """Store and derive until `stop` is called, then once more for the rest."""
        with suppress(BrokenStoreError):  # the alarm says it; the supervisor ends the process
            self._run_until_stopped()
            self._attempt(idle=False)
        self._refresher.close()

    def _run_until_stopped(self) -> None:
        while not self._stopping.is_set():
            patience = INTERVAL_SECONDS if self._postponed else IDLE_SECONDS
            idle = not (self._spool.arrived.wait(timeout=patience) or self._postponed)
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
        done = self._queue.add(work)
        self._spool.arrived.set()
        return result_of(done, self.is_alive)

    def empty_spool(self) -> None:
        """Store what was received until now, and erase it from the spool.

        What is received meanwhile stays on the spool. Call it in the loader's thread only, so in
        work of `run_between_batches`.
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
        if with_quarantined:
            self._refresher.quarantine.retry_now()
        step, spans = self._refresher.step, self._batch_size.spans
        while step(spans, paced=False).is_busy or self._refresher.wait():
            pass
        # Otherwise senders would be slowed for the lag that was measured before.
        self._note_lag()

    def _run_queued(self) -> None:
        for queued in self._queue.take_all():
            # The work may change rows that a worker process derives from at this moment.
            self._refresher.give_up()
            try:
                self._file.check()
                result = queued.work(self._store)
                self._file.note()
                queued.done.set_result(result)
            except BrokenStoreError as error:  # this thread cannot go on
                queued.done.set_exception(error)
                raise
            except Exception as error:  # noqa: BLE001  it is raised in the calling thread
                queued.done.set_exception(error)

    def stop(self) -> None:
        """Store all durable requests, update the derived tables, and end the thread."""
        self._stopping.set()
        self._spool.arrived.set()
        self.join()

    def _attempt(self, *, idle: bool) -> None:
        least = 0 if self._stopping.is_set() else ROW_GROUP_ROWS
        self._run_queued()
        with self._watching(STORING):
            # First store all that waits, even a single row. After that store only full row groups,
            # and derive in between.
            self._load_some(0)
            self._derive_due()
            while self._load_some(least) or self._derive_watched():
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
        """Derive for the time that storing owes to deriving; else storing would take all time."""
        while self._time_share.is_deriving_due and self._derive_watched():
            pass
        self._time_share.reset()

    def _note_lag(self) -> None:
        unstored_ns = self._read_ahead.oldest_ns(self.position)
        put_off = self._refresher.backoff.put_off(self._settings.max_lag_seconds)
        self.lag.note(self._store, put_off, unstored_ns)

    def _note_retries(self) -> None:
        """Raise an alarm if the same traces are given up again and again; clear it otherwise.

        Giving up is no error, so without this alarm only a growing lag would show it.
        """
        if self.derive_retries < MOST_RETRIES:
            self._alarms.clear(RETRYING)
            return
        reason = f"the same traces were given up {MOST_RETRIES} times or more"
        self._alarms.raise_alarm(RETRYING, reason)

    def _derive_watched(self) -> bool:
        """Derive some rows; after an error storing continues, and deriving is retried later."""
        with self._watching("deriving", clears=False):
            is_busy = self._derive_some()
            if self._derives_again and not self._refresher.quarantine.holds_traces:
                self._alarms.clear("deriving")
            return is_busy
        return False

    @contextmanager
    def _watching(self, alarm: str, *, clears: bool = True) -> Iterator[None]:
        """Raise an alarm if the block raises any exception.

        The loader continues: acknowledged requests stay on the spool and are retried.

        Args:
            alarm: Its name.
            clears: Whether to clear it if the block raises none.
        """
        try:
            yield
        except BrokenStoreError as error:  # only a restart of DuckDB, so of the process, helps
            self._alarms.raise_alarm(alarm, f"{_in_one_line(error)}. {RESTART}")
            self._wait_for_disk()
            raise
        except Exception as error:  # if the thread ended, nothing would be stored any more
            is_expected = isinstance(error, StoreError | OSError)  # the alarm says enough of it
            if not (is_expected or self._alarms.is_raised(alarm)):
                logger.exception("%s failed; it is tried again", alarm.capitalize())
            self._alarms.raise_alarm(alarm, _in_one_line(error))
            self._stopping.wait(RETRY_SECONDS)
        else:
            if clears:
                self._alarms.clear(alarm)

    def _wait_for_disk(self) -> None:
        """Wait until the store's disk takes writes: a restart before that would not help.

        Meanwhile requests are received, as long as the spool's disk takes them.
        """
        path = self._store.path
        while path and store_fault(path) and not self._stopping.wait(RETRY_SECONDS):
            pass

    def _derive_some(self) -> bool:
        """Derive a batch if it is due; return whether rows were derived.

        While deriving keeps up it takes at most half of the time, because larger batches cost less
        per row. A long conversation that grows waits longer, as `Backoff` says.
        """
        began, lag = time.monotonic(), self.lag.work()
        is_due = began >= self._derive_at or lag > PROMPT_SECONDS or self._refresher.is_ready
        self._postponed = not (is_due or self._stopping.is_set())
        self._derives_again = False
        if self._postponed or not self._settings.derive:
            return False
        is_paced = not self._stopping.is_set()
        if not is_paced:
            self._refresher.wait()
        done = self._refresher.step(self._batch_size.spans, paced=is_paced)
        # A batch that was only sent to a worker may fail as the one before.
        self._derives_again = done.ids > 0 or not (done.is_busy or self._refresher.is_working)
        self._note_retries()
        self._note_lag()
        waits = self._refresher.is_working and not is_paced
        if not done.is_busy:
            self._postponed = bool(is_paced and self._refresher.backoff.waiting())
            return waits
        ended = time.monotonic()
        self._time_share.derived(ended - began)
        if done.ids:
            self.lag.derived(done.ids, done.seconds)
            self._batch_size.took(done.batch_seconds, is_full=self.lag.has_more)
            self._derive_at = ended + (ended - began)  # a pause as long as the work
        return True

    def _retain(self) -> None:
        if self.retention.is_due:
            with self._watching(RETAINING):
                # Otherwise rows of a trace that is deleted here would come back from a worker.
                self.retention.run(spared=self._refresher.traces_in_flight())

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

    def _store_batch(self, records: list[Record]) -> None:
        """Store the requests of records, and note what that means for all else."""
        began = time.monotonic()
        end, size = records[-1].end, size_of(records)
        recovered = self.recovered_requests.count(records)
        load(
            self._store,
            as_requests(records),
            self.seen_ids,
            limits=self._settings.limits,
            end=end,
            dead_letters=self._spool.folder / SET_ASIDE,
            derives=self._settings.derive,
        )
        self.recovered_requests.note_stored(recovered, end)
        self.position = end
        self._checkpoints.stored(size)
        # Only after the commit: until then the spool has the only copy.
        self._file.check()
        self._spool.forget(end)
        seconds = time.monotonic() - began
        self._note_lag()
        self.lag.stored(size, seconds)
        self._time_share.stored(seconds)


def _in_one_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]
