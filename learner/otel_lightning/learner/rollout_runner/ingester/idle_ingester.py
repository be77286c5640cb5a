"""The ingester of a run: it listens at once, but is started only when somebody needs it.

To start `lightning-ingest` takes as much CPU as 100 rollouts of a trivial command. So its socket
listens before it runs: a connection waits there until it accepts, as with systemd's socket
activation. It starts at the first connection, once an agent has run for half a second, or five
seconds after the run began. If none of that happens, no agent has sent anything, and the runner
writes the journal into the store itself. A store whose spool has requests that are not stored yet,
or that has rows to derive, needs its ingester at once.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from otel_lightning.collector.spool.folder import dead_letters, spool_folder
from otel_lightning.collector.store import read_server, server_file
from otel_lightning.collector.terminal.command_line import uncollected
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.file_lock import locked_alone, opened_lock
from otel_lightning.learner.rollout_runner.launcher.output_files import end_on_one_line
from otel_lightning.learner.rollout_runner.launcher.processes import (
    Processes,
    Spec,
    wait_until,
)
from otel_lightning.learner.rollout_runner.plan import runs_folder

if TYPE_CHECKING:
    from otel_lightning.collector.store import Store
    from otel_lightning.learner.rollout_runner.plan import Job

QUICK_SECONDS = 0.5
"""An agent that runs for longer may be about to send its first spans: OpenTelemetry's exporters
give up after 10 seconds, and a start on a busy machine takes a part of them."""
WITHIN_SECONDS = 5.0
"""Time after which the ingester starts in any case, so that others can read the store."""
WAIT_SECONDS = 60.0
PRIVATE = 0o077
"""The umask with which the ingester creates files, too."""
CHANGES = frozenset(
    f"LIGHTNING_{name}"
    for name in (
        "TOKEN", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "MAX_VALUE_LENGTH", "MAX_ATTRIBUTES",
        "NO_DERIVE", "RETAIN", "MAX_SIZE",
    )
)  # fmt: skip
"""Variables of `lightning-ingest serve` that change its address, or what it stores or deletes."""
TAKEN = (
    "Another lightning-ingest has begun to serve '{}' since this run began. Give the same command "
    "again: it uses that one, and runs only what is missing."
)


class Claim(NamedTuple):
    """A listening socket, and the lock that keeps other runs of the same store waiting."""

    listening: socket.socket
    lock: int
    """File descriptor. The launcher keeps it open, too."""
    owns_process: bool
    """Whether nothing else runs in this process, so that pandas may be left out of it."""

    @property
    def held(self) -> tuple[int, int]:
        """File descriptors that the launcher inherits."""
        return self.lock, self.listening.fileno()

    @property
    def url(self) -> str:
        """Address of the ingester, also before it runs."""
        host, port = self.listening.getsockname()
        return f"http://{host}:{port}"


@contextmanager
def claimed_for(
    store: Path, job: "Job", *, has_rule: bool, owns_process: bool
) -> Iterator[Claim | None]:
    """Listen for the ingester of a store; yield None if one runs, or has to start at once.

    If another run has claimed the store, wait until it serves the store or has ended. A run whose
    ingester starts at once keeps others waiting likewise.

    Args:
        store: Path of the store.
        job: A server of its `url` sends spans when it likes, and Ray runs agents on other machines.
        has_rule: Whether a rule grades the rollouts: it loads what the ingester would.
        owns_process: Whether nothing else runs in this process.
    """
    if job.endpoint or not sys.platform.startswith("linux") or read_server(store) is not None:
        yield None
        return
    needs_it = job.url or job.ray or has_rule or CHANGES & os.environ.keys()
    with opened_lock(runs_folder(store) / "idle-ingester.lock") as lock:
        if not _locked(lock, store) or read_server(store) is not None:
            lock.close()  # the next run need not wait for this one
            yield None
        elif needs_it or not _may_wait(store):
            yield None
        else:
            with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
                yield Claim(listening, lock.fileno(), owns_process)


def _may_wait(store: Path) -> bool:
    """Return whether a store has no spool, or is there to be compared with it."""
    return store.exists() or not spool_folder(store).exists()


def _locked(lock: IO[bytes], store: Path) -> bool:
    """Wait for the lock; return False once its owner serves the store, or after `WAIT_SECONDS`."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not locked_alone(lock):
        if read_server(store) is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@dataclass(slots=True)
class IdleIngester:
    """Starts the ingester when it is needed, or takes its place if it never was."""

    store: Path
    claim: Claim
    spec: Spec
    processes: Processes
    is_awake: bool = False
    until: float = field(default_factory=lambda: time.monotonic() + WITHIN_SECONDS)
    _opened: "Store | None" = None

    def look(self, started_ns: Iterable[int]) -> None:
        """Start the ingester if something needs it.

        Args:
            started_ns: Starts of the attempts that run, in Unix nanoseconds.

        Raises:
            DataError: If it was started, and has ended by itself.
        """
        if self.is_awake:
            self._check()
            return
        slow = time.time_ns() - int(QUICK_SECONDS * 1e9)
        is_late = time.monotonic() >= self.until
        if (
            is_late
            or any(started < slow for started in started_ns)
            or self._has_waiting_connection()
        ):
            self.wake()

    def wake(self) -> None:
        """Start the ingester, and do not wait for it: connections wait in the socket's queue.

        Raises:
            DataError: If another process has begun to serve the store.
        """
        if self.is_awake:
            return
        if read_server(self.store) is not None:
            raise DataError(TAKEN.format(self.store))
        self.is_awake = True
        server_file(self.store).unlink(missing_ok=True)
        self.processes.start(self.spec)
        # The launcher has a copy. It closes that once the ingester has its own, so that
        # connections are refused, and do not wait, if the ingester ends.
        self.claim.listening.close()

    def withdraw(self) -> bool:
        """Return whether the ingester was never needed; call it when no agent is left.

        Otherwise it serves the store when this returns.

        Raises:
            DataError: If it does not start.
        """
        if not self.is_awake and self._has_waiting_connection():
            self.wake()
        if self.is_awake:
            wait_until(
                self.processes,
                self.spec,
                lambda: read_server(self.store) is not None,
                WAIT_SECONDS,
                f"lightning-ingest for '{self.store}'",
            )
        return not self.is_awake

    def take(self, body: bytes) -> bool:
        """Store a request with log records in this process, if `opened` has opened the store.

        Otherwise start the ingester, and return False.
        """
        if self._opened is None:
            self.wake()
            return False
        from otel_lightning.collector.load.batches import Request, load

        request = Request("logs", time.time_ns(), body)
        load(self._opened, [request], dead_letters=dead_letters(self.store))
        return True

    @contextmanager
    def opened(self) -> Iterator["Store"]:
        """Open or create the store in this process: no agent runs, or none has sent anything.

        Raises:
            DataError: If another process has begun to serve the store.
        """
        if self.claim.owns_process:
            from otel_lightning.collector.process.light_imports import leave_out_unused

            leave_out_unused()
        with uncollected():
            from otel_lightning.collector.load import batches  # noqa: F401  see `uncollected`
            from otel_lightning.collector.refresh import logs_without_trace  # noqa: F401
            from otel_lightning.collector.store import open_when_free
        previous_mask = os.umask(PRIVATE)
        try:
            with open_when_free(self.store, WAIT_SECONDS) as opened:
                if opened.server:
                    raise DataError(TAKEN.format(self.store))
                opened.threads = 1  # a second one would only spin while Python works
                self._opened = opened
                yield opened
        finally:
            self._opened = None
            os.umask(previous_mask)

    def _has_waiting_connection(self) -> bool:
        # `select.select` refuses descriptors above 1,023.
        poll = select.poll()
        poll.register(self.claim.listening, select.POLLIN)
        return bool(poll.poll(0))

    def _check(self) -> None:
        if self.processes.service_ended(self.spec.name):
            last_output = end_on_one_line(self.spec.stderr) or end_on_one_line(self.spec.stdout)
            raise DataError(
                f"lightning-ingest for '{self.store}' ended by itself. Its last output: "
                f"{last_output or 'none'}"
            )
