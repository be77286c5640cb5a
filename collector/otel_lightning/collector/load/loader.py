"""The loader: a thread that moves requests from the spool into the store and derives their rows.

One transaction writes the rows and the spool position up to which they were read. So a crash
neither loses nor repeats a row, and a span that was sent twice is stored once. Large transactions
cost less per row: under load the loader waits up to half a second for more requests. The loader
decides when DuckDB writes a checkpoint, because a commit has to wait for it.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from otel_lightning.collector.alarms import RETAINING, RETRYING, Alarms
from otel_lightning.collector.files.overwrite import overwrite
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.checkpoints import Checkpoints
from otel_lightning.collector.load.flow_control.lag import Lag
from otel_lightning.collector.load.flow_control.scheduling import BatchSize, TimeShare
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
BATCH_BYTES = 17 * 1024 * 1024  # most bytes to store in one transaction
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


class QueuedWork(NamedTuple, Generic[Result]):
    """Work that another thread asks the loader to do, and the future for its result."""

    work: Callable[[Store], Result]
    done: Future[Result]


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
        self._ahead: list[Record] = []  # records read from the spool but not stored yet
        self._stopping = threading.Event()
        self._checkpoints = Checkpoints(store, self._alarms, self._refresher.await_sent)
        self._derive_at = 0.0  # earliest time of the next deriving while it keeps up
        self._postponed = False  # whether deriving has to run soon even if no request arrives
        self._derives_again = False  # whether the last step derived something, or nothing was left
        clock = TrustedClock(spool.folder, newest_received(store))
        self.retention = Retention(store, settings, clock)
        self._queued: queue.SimpleQueue[QueuedWork[Any]] = queue.SimpleQueue()
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
        queued = QueuedWork(work, Future())
        self._queued.put(queued)
        self._spool.arrived.set()
        # The thread may end before it takes the work; then nobody would set the result.
        while not queued.done.done() and self.is_alive():
            wait([queued.done], timeout=INTERVAL_SECONDS)
        if not queued.done.done():
            raise StoreError("lightning-ingest is stopping. Try again when it is stopped.")
        return queued.done.result()

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
        while not self._queued.empty():
            queued = self._queued.get()
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
        with self._watching("storing"):
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
        if self._ahead:
            unstored_ns: int | None = self._ahead[0].received_ns
        else:
            unstored_ns = self._spool.oldest_ns(self.position)
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
            is_told = isinstance(error, StoreError | OSError)  # by the alarm, without a traceback
            if not (is_told or self._alarms.is_raised(alarm)):
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

    def _load_some(self, least: int) -> bool:
        """Store a batch if at least `least` rows or `BATCH_BYTES` wait; return whether it did."""
        self._file.check()
        ahead, self._ahead = self._ahead, []  # after an error the spool is read again
        if (room := BATCH_BYTES - _size(ahead)) > 0:
            ahead += self._spool.read(ahead[-1].end if ahead else self.position, room)
        many = sum(record.rows for record in ahead) >= least or _size(ahead) >= BATCH_BYTES
        if not ahead or not many:
            self._ahead = ahead
            return False
        began = time.monotonic()
        count = _filling(ahead)
        end, size = ahead[count - 1].end, _size(ahead[:count])
        former = self.recovered_requests.count(ahead[:count])
        requests = map(_request, ahead[:count])
        del ahead[:count]  # so that each record's memory is freed once it is decoded
        dead_letters = self._spool.folder / SET_ASIDE
        load(
            self._store,
            requests,
            self.seen_ids,
            limits=self._settings.limits,
            end=end,
            dead_letters=dead_letters,
            derives=self._settings.derive,
        )
        self.recovered_requests.note_stored(former, end)
        self.position, self._ahead = end, ahead
        self._checkpoints.stored(size)
        # Only after the commit: until then the spool has the only copy.
        self._file.check()
        self._spool.forget(end)
        seconds = time.monotonic() - began
        self._note_lag()
        self.lag.stored(size, seconds)
        self._time_share.stored(seconds)
        return True


def _in_one_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]


def _filling(records: Sequence[Record]) -> int:
    """Return the number of records to store together: as many as fill whole row groups, or all.

    DuckDB writes a full, or almost full, row group to the file once. It would write the rows of a
    small rest again at the next checkpoint, so such a rest waits for the next batch.
    """
    rows = np.cumsum([record.rows for record in records])
    rest = rows % ROW_GROUP_ROWS
    fills = (rows >= ROW_GROUP_ROWS) & ((rest == 0) | (rest > ROW_GROUP_ROWS * 3 // 4))
    return int(np.flatnonzero(fills)[-1]) + 1 if fills.any() else len(records)


def _size(records: Sequence[Record]) -> int:
    return sum(len(record.body) for record in records)


def _request(record: Record) -> Request:
    return Request(record.signal, record.received_ns, record.body, record.damaged)
