"""From the spool into the store: each span once, however often it was sent.

The rows and the position up to which the spool was read are one transaction, so a crash at any
moment neither loses nor repeats a row. Large transactions are cheaper: under load the loader waits
for more, up to half a second. It says when DuckDB writes a checkpoint, because commits wait for it.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.load.batches import Request, load, resume
from otel_lightning.collector.load.retention import Keeping, forget, newest_received
from otel_lightning.collector.load.sharing import Sharing
from otel_lightning.collector.load.trusted_clock import TrustedClock
from otel_lightning.collector.refresh.backoff import Pace
from otel_lightning.collector.refresh.refresh import oldest_stale, refresh_with_room
from otel_lightning.collector.spool import SET_ASIDE, Spool
from otel_lightning.collector.spool_format import Record
from otel_lightning.collector.store import ROW_GROUP_ROWS, BrokenStoreError, Store, StoreError
from otel_lightning.collector.store.seen_ids import Known

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.5
GATHER_SECONDS = 0.05
BATCH_BYTES = 17 * 1024 * 1024
RETRY_SECONDS = 1.0
IDLE_SECONDS = 5.0
CHECKPOINT_BYTES = 32 * 1024 * 1024  # received; what came in small pieces is written again
FORGET_SECONDS = 300.0
REASON_LENGTH = 300  # characters of an error that an alarm repeats
SPANS_BETWEEN_LOADS = 5_000  # are derived together while more waits to be stored
PROMPT_SECONDS = 2.0  # of lag, from which on deriving no longer waits for more to derive together
KEEP_EVERYTHING = Keeping()


class Errand(NamedTuple):
    """Work with the store that another thread asked for, and where its answer goes."""

    work: Callable[[Store], str]
    done: Future[str]


class Loader(threading.Thread):
    """Tails the spool, stores what is durable, and keeps the derived tables current."""

    def __init__(
        self,
        store: Store,
        spool: Spool,
        keeping: Keeping = KEEP_EVERYTHING,
        alarms: Alarms | None = None,
    ) -> None:
        super().__init__(name="loader")
        self._alarms = alarms or Alarms()
        self._store, self._spool, self._keeping = store, spool, keeping
        self._known, self._pace = Known(store), Pace()
        self._ahead: list[Record] = []  # what was read from the spool and is not stored yet
        self._stopping = threading.Event()
        self._threads = store.threads
        self._since = 0.0  # when the last load ended, or before it began
        self._unwritten = 0  # bytes that were stored since the last checkpoint
        self._derive_at = 0.0  # not before
        self._postponed = False
        self._looked = -FORGET_SECONDS  # when what is too old was last looked for
        self._clock = TrustedClock(spool.folder, newest_received(store))
        self._errands: queue.SimpleQueue[Errand] = queue.SimpleQueue()
        self._sharing = Sharing(keeping.max_lag_seconds)
        self._started_ns = time.time_ns()
        self._lags = False
        self._stale = 0  # traces and log records
        self._derived_per_second: float | None = None  # of those
        self.underived_ns: int | None = None
        """When the oldest request whose rows are not derived yet was received."""
        self.position = resume(store, spool)

    @property
    def repeated_ids(self) -> int:
        """Number of spans that were not stored since the start: others have their ids."""
        return self._known.repeated

    def run(self) -> None:
        """Load until told to stop, then drain what is left."""
        while not self._stopping.is_set():
            patience = INTERVAL_SECONDS if self._postponed else IDLE_SECONDS
            idle = not (self._spool.arrived.wait(timeout=patience) or self._postponed)
            self._spool.arrived.clear()
            self._attempt(idle=idle)
            self._gather()
        self._attempt(idle=False)

    def _gather(self) -> None:
        """Wait for more, so much that it fills a row group, or half a second."""
        until = time.monotonic() + INTERVAL_SECONDS
        while self._spool.backlog() < BATCH_BYTES and time.monotonic() < until:
            if self._stopping.wait(GATHER_SECONDS):
                return

    def run_errand(self, work: Callable[[Store], str]) -> str:
        """Have this thread do something with the store between two batches; wait for its answer.

        Whatever it raises is raised here.

        Raises:
            StoreError: If this thread has ended.
        """
        errand = Errand(work, Future())
        self._errands.put(errand)
        self._spool.arrived.set()
        while not errand.done.done() and self.is_alive():
            wait([errand.done], timeout=INTERVAL_SECONDS)
        if not errand.done.done():
            raise StoreError("lightning-ingest is stopping. Try again when it is stopped.")
        return errand.done.result()

    def _run_errands(self) -> None:
        while not self._errands.empty():
            errand = self._errands.get()
            try:
                errand.done.set_result(errand.work(self._store))
            except Exception as error:  # noqa: BLE001  whoever asked gets it
                errand.done.set_exception(error)

    def stop(self) -> None:
        """Load what is durable, bring the derived tables up to date, and end."""
        self._stopping.set()
        self._spool.arrived.set()
        self.join()

    def _attempt(self, *, idle: bool) -> None:
        self._since = time.monotonic()
        least = 0 if self._stopping.is_set() else ROW_GROUP_ROWS
        self._run_errands()
        with self._watching("storing"):
            self._load_some(0)
            self._derive_owed()
            while self._load_some(least) or self._derive_watched():
                self._derive_owed()
            if self._spool.backlog():
                self._spool.arrived.set()  # a rest comes with more, half a second later
            self._forget_some()
            if idle:
                self._checkpoint()
                self._work_with(self._threads)

    def _derive_owed(self) -> None:
        """Derive as long as storing owes it: else nothing would be derived under load."""
        while self._sharing.owes and self._derive_watched():
            pass
        self._sharing.forgive()

    def derive_lag(self) -> float:
        """Return how many seconds ago the oldest request was received that is not derived yet."""
        oldest = self.underived_ns
        return 0.0 if oldest is None else max(time.time_ns() - oldest, 0) / 1e9

    def _coming_lag(self) -> float:
        """Return how far deriving lags, or will when it reaches what was stored last."""
        coming = self._stale / self._derived_per_second if self._derived_per_second else 0.0
        return max(self.derive_lag(), coming)

    def _note_lag(self) -> None:
        """Look how far deriving lags; say so once when it is too far, and once when it is not.

        What a former process left underived does not count: it must not slow senders down.
        """
        if not self._keeping.derive:
            return
        found = oldest_stale(self._store, self._started_ns, self._pace.waiting())
        self._stale, self.underived_ns = found.ids, found.received_ns
        lag, most = self.derive_lag(), self._keeping.max_lag_seconds
        if self._lags != (lag > (most / 2 if self._lags else most)):
            self._lags = not self._lags
            told = "lags more than --max-lag" if self._lags else "keeps up again, with a lag of"
            logger.warning("Deriving %s (%.0f s).", told, lag)

    def _derive_watched(self) -> bool:
        """Derive some; if that fails, storing goes on and deriving is tried again later."""
        with self._watching("deriving"):
            return self._derive_some()
        return False

    @contextmanager
    def _watching(self, alarm: str) -> Iterator[None]:
        """Raise an alarm if the block fails, whatever the reason; clear it if it ends well.

        The loader goes on: what was acknowledged stays on the spool and is tried again.
        """
        try:
            yield
        except BrokenStoreError as error:  # until DuckDB starts again: the process must end
            self._alarms.sound(alarm, _in_one_line(error))
            raise
        except Exception as error:  # the thread must live, or nothing is stored any more
            if alarm not in {raised.name for raised in self._alarms.raised()}:
                logger.exception("%s failed; it is tried again", alarm.capitalize())
            self._alarms.sound(alarm, _in_one_line(error))
            self._stopping.wait(RETRY_SECONDS)
        else:
            self._alarms.clear(alarm)

    def _derive_some(self) -> bool:
        """Derive, half of the time at most while it keeps up; long conversations wait longer."""
        began, lag = time.monotonic(), self._coming_lag()
        is_due = began >= self._derive_at or lag > PROMPT_SECONDS or self._sharing.owes
        self._postponed = not (is_due or self._stopping.is_set())
        if self._postponed or not self._keeping.derive:
            return False
        most = self._keeping.spans_at_once
        more_came = self._spool.arrived.is_set() and lag < PROMPT_SECONDS
        at_once = min(most, SPANS_BETWEEN_LOADS) if more_came else most
        pace = None if self._stopping.is_set() else self._pace
        done = refresh_with_room(self._store, at_once, pace)
        self._note_lag()
        if not done:
            self._postponed = bool(pace and pace.waiting())
            return False
        ended = time.monotonic()
        self._sharing.derived(ended - began)
        rate, known = done / max(ended - began, 1e-6), self._derived_per_second
        self._derived_per_second = (rate + known) / 2 if known else rate
        self._derive_at = ended + (ended - began)
        return True

    def _forget_some(self) -> None:
        if time.monotonic() - self._looked >= FORGET_SECONDS:
            self._looked = time.monotonic()
            forget(self._store, self._keeping, self._clock.now_ns())

    def _checkpoint(self) -> None:
        if self._unwritten and self._store.checkpoint():
            self._unwritten = 0
            self._store.let_go()
            pa.default_memory_pool().release_unused()

    def _work_with(self, threads: int) -> None:
        """Use one thread to load: a second makes the first spin while it waits, a third of all CPU.

        Whoever asks while nothing is loaded has them all.
        """
        if self._store.threads != threads:
            self._store.threads = threads

    def _load_some(self, least: int) -> bool:
        """Load what waits, if it has so many rows or bytes enough."""
        ahead, self._ahead = self._ahead, []  # if this fails, it is read again
        if (room := BATCH_BYTES - _size(ahead)) > 0:
            ahead += self._spool.read(ahead[-1].end if ahead else self.position, room)
        many = sum(record.rows for record in ahead) >= least or _size(ahead) >= BATCH_BYTES
        if not ahead or not many:
            self._ahead = ahead
            return False
        self._work_with(1)
        began = time.monotonic()
        count = _filling(ahead)
        end, size = ahead[count - 1].end, _size(ahead[:count])
        requests = map(_request, ahead[:count])
        del ahead[:count]  # what was decoded is let go while the rest is
        dead_letters = self._spool.folder / SET_ASIDE
        load(
            self._store,
            requests,
            self._known,
            limits=self._keeping.limits,
            end=end,
            dead_letters=dead_letters,
            derives=self._keeping.derive,
        )
        self.position, self._ahead = end, ahead
        self._tell_rate(size)
        self._unwritten += size
        if self._unwritten >= CHECKPOINT_BYTES:
            self._checkpoint()
        self._spool.forget(end)
        self._note_lag()
        self._sharing.stored(time.monotonic() - began, self._coming_lag())
        return True

    def _tell_rate(self, size: int) -> None:
        """Tell the spool how fast it is emptied; what is small takes as long as what is not."""
        now = time.monotonic()
        if size >= BATCH_BYTES // 4:
            rate, known = size / (now - self._since), self._spool.stored_per_second
            self._spool.stored_per_second = (rate + known) / 2 if known else rate
        self._since = now


def _in_one_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]


def _filling(records: Sequence[Record]) -> int:
    """How many of the first records to store together.

    What fills row groups is written once, to its place. A rest that fills half of one or less would
    be written again, at a checkpoint, together with its neighbours.
    """
    rows = np.cumsum([record.rows for record in records])
    rest = rows % ROW_GROUP_ROWS
    fills = (rows >= ROW_GROUP_ROWS) & ((rest == 0) | (rest > ROW_GROUP_ROWS * 3 // 4))
    return int(np.flatnonzero(fills)[-1]) + 1 if fills.any() else len(records)


def _size(records: Sequence[Record]) -> int:
    return sum(len(record.body) for record in records)


def _request(record: Record) -> Request:
    return Request(record.signal, record.received_ns, record.body, record.damaged)
