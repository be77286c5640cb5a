"""Watch the threads of `lightning-ingest serve`, how far they lag, and what dies again and again.

A thread without which nothing is received, stored or derived ends the process when it dies. Worker
processes are replaced, background threads go on after an error, and a supervisor starts this
process again if it ended without being asked to: if one of them happens again and again, it is the
alarm `restarting`.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from otel_lightning.collector.alarms import RECEIVING, RESTARTING, STORING, Alarms
from otel_lightning.collector.last_run import Run
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.spool.disk_time import HANGS
from otel_lightning.collector.spool.oldest_request import READ_HANGS, OldestRequest
from otel_lightning.collector.spool.spool import Spool

LOOK_SECONDS = 0.5
LAG_SECONDS = 5.0  # interval of the look at the lag, which reads a request from the spool
MANY = 3
WITHIN_SECONDS = 300.0


class Repetition:
    """Tells whether something happens again and again: `MANY` times within `WITHIN_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing.

        Args:
            clock: Returns a time in seconds.
        """
        self._clock = clock
        self._seen = 0
        self._times: deque[float] = deque(maxlen=MANY)

    def is_frequent(self, total: int) -> bool:
        """Return whether it happens again and again; call it often.

        Args:
            total: How often it has happened until now.
        """
        now = self._clock()
        self._times.extend([now] * min(total - self._seen, MANY))
        self._seen = total
        while self._times and now - self._times[0] > WITHIN_SECONDS:
            self._times.popleft()
        return len(self._times) == MANY


class Supervisor(BackgroundThread):
    """Looks after the threads of the process.

    The event loop only asks which has died. Work that may wait for a disk is done in a thread.
    """

    def __init__(
        self,
        loader: Loader,
        spool: Spool,
        background: Iterable[BackgroundThread],
        alarms: Alarms,
        run: Run,
    ) -> None:
        """Prepare; `start` begins to look.

        Args:
            loader: The loader, which owns the worker processes.
            spool: The spool.
            background: The other threads, some of which may not be started yet.
            alarms: Gets the alarms `lagging`, `receiving`, `storing` and `restarting`.
            run: Has the ends of previous processes.
        """
        super().__init__("supervisor", LOOK_SECONDS)
        self._loader, self._spool, self._alarms = loader, spool, alarms
        self._last_run = run
        self._oldest = OldestRequest(spool)
        self._background = [loader.worker_watch, *background, self]
        self._servers: list[threading.Thread] = []
        self._looked_at = time.monotonic()
        self._repetitions = {name: Repetition() for name in self._restarts()}

    @property
    def thread_failures(self) -> int:
        """Number of errors in background threads since the start."""
        return sum(thread.failures for thread in self._background)

    @property
    def former_end_seconds(self) -> float:
        """When the process before ended, if nobody had asked it to, in Unix seconds; else 0."""
        return self._last_run.previous_end.at if self._last_run.previous_end else 0.0

    def oldest_ns(self) -> int | None:
        """Return when the oldest request that is not stored was received, in Unix nanoseconds.

        Raises:
            OSError: If the spool cannot be read, or its disk does not answer in time.
        """
        return self._oldest.received_ns(self._loader.position)

    def watch(self, threads: Iterable[threading.Thread]) -> None:
        """Watch the threads of a server, which end only with the process."""
        for one in threads:
            if isinstance(one, BackgroundThread):
                self._background.append(one)
            else:
                self._servers.append(one)

    async def until_one_dies(self) -> str:
        """Return what has ended by itself, once something has, such as "loader thread"."""
        while (dead := self._dead()) is None:  # noqa: ASYNC110  a thread that dies sets no event
            await asyncio.sleep(LOOK_SECONDS)
        return dead

    def look(self) -> None:
        """Raise or clear the alarms that no other thread would."""
        self._look_for_failures()
        if self._spool.disk_time.is_stalled:
            self._alarms.raise_alarm(RECEIVING, self._reason(HANGS))
        if self._oldest.is_stalled:  # the loader waits, too, and clears the alarm when it goes on
            self._alarms.raise_alarm(STORING, self._reason(READ_HANGS))
        if time.monotonic() - self._looked_at > LAG_SECONDS:
            # The loader looks after each batch. It does not while it waits for something.
            self._looked_at = time.monotonic()
            with suppress(OSError):  # the loader cannot read the spool either: alarm `storing`
                self._loader.lag.watch(self.oldest_ns())

    def _reason(self, fault: str) -> str:
        return f"{fault}, in '{self._spool.folder}'. The system's log (dmesg) may say why"

    def _look_for_failures(self) -> None:
        frequent = [
            name
            for name, total in self._restarts().items()
            if self._repetitions[name].is_frequent(total)
        ]
        if self._last_run.recent_ends(WITHIN_SECONDS) >= MANY:
            frequent.append("lightning-ingest itself")
        if frequent:
            failed = f"failed {MANY} times or more within {WITHIN_SECONDS:g} s; see the log"
            self._alarms.raise_alarm(RESTARTING, f"{' and '.join(frequent)} {failed}")
        else:
            self._alarms.clear(RESTARTING)

    def _restarts(self) -> Mapping[str, int]:
        return {
            "worker processes": self._loader.worker_restarts,
            "background threads": self.thread_failures,
        }

    def _dead(self) -> str | None:
        if not self._loader.is_alive():
            return "loader thread"
        if not self._spool.is_alive():
            return "spool thread"
        dead = [f"{one.name} thread" for one in self._background if one.has_died]
        dead += [f"{one.name} server" for one in self._servers if not one.is_alive()]
        return dead[0] if dead else None
