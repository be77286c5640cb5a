"""End the statements of SQL clients whose connection is closed.

DuckDB's server runs a statement to its end also if nobody waits for the answer, and it does not
say to which connection a statement belongs. Linux says of each connection whether it is closed,
whether a request on it waits for an answer, and when that request came. A running statement belongs
to a connection whose request waits, and that came before the statement began. So most statements
have only one possible connection. A statement is ended only if every possible one is closed: no
statement of a client that still waits is ever ended.
"""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.process.tcp_connections import (
    DESCRIPTORS,
    Connection,
    connections,
    open_descriptors,
)
from otel_lightning.collector.store.clients.cancellation import Cancellation

LOOK_SECONDS = 1.0
"""How often to look, and how long a statement runs before it is looked for."""
CLOCK_SECONDS = 0.05
"""Most difference between the clock of TCP's times, which has coarse steps, and ours."""


@dataclass(eq=False, slots=True)
class Statement:
    """A statement that runs."""

    cancellation: Cancellation
    began: float
    """When it began, in seconds of `time.monotonic`."""
    possible: set[int] | None = None
    """Sockets of the connections that it may belong to; None before the first look."""


class ClientWatch(BackgroundThread):
    """A thread that cancels statements whose client has gone. It does nothing but on Linux."""

    def __init__(self, port: int) -> None:
        """Prepare the thread; `start()` runs it.

        Args:
            port: The port of the SQL server, in this process.
        """
        super().__init__("client-watch", LOOK_SECONDS)
        self._port = port
        self._running: set[Statement] = set()
        self._possible: list[int] = []  # descriptors of connections that statements may belong to
        self._changed = threading.Condition()
        self._is_stopping = False

    @contextmanager
    def watched(self, cancellation: Cancellation) -> Iterator[None]:
        """Cancel the statement that the block runs once its client has gone."""
        statement = Statement(cancellation, time.monotonic())
        with self._changed:
            self._running.add(statement)
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._running.discard(statement)

    def look_until_stopped(self) -> None:
        """Look once a second while statements run."""
        while hasattr(socket, "TCP_INFO") and DESCRIPTORS.exists():
            with self._changed:
                self._changed.wait_for(lambda: self._running or self._is_stopping)
                self._changed.wait_for(lambda: self._is_stopping, LOOK_SECONDS)
                if self._is_stopping:
                    return
                before = time.monotonic() - LOOK_SECONDS
                old = [one for one in self._running if one.began < before]
            with self.surviving():
                if old:
                    self._look(old)

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def _look(self, running: list[Statement]) -> None:
        # There may be thousands of connections, and a statement gets no other one later.
        is_known = all(one.possible is not None for one in running)
        now = time.monotonic()
        open_connections = list(
            connections(self._possible if is_known else open_descriptors(), {self._port})
        )
        for statement in abandoned(running, open_connections, now):
            statement.cancellation.cancel()
        possible = set().union(*(one.possible or () for one in running))
        self._possible = [one.descriptor for one in open_connections if one.inode in possible]


def abandoned(
    running: Iterable[Statement], open_connections: Iterable[Connection], now: float
) -> list[Statement]:
    """Return the statements whose every possible connection is closed.

    Args:
        running: All statements that run; their possible connections become fewer with each call.
        open_connections: The connections to the server.
        now: When they were found, in seconds of `time.monotonic`.
    """
    statements, by_inode = list(running), {one.inode: one for one in open_connections}
    for statement in statements:
        latest = statement.began + CLOCK_SECONDS
        waiting = {
            inode
            for inode, one in by_inode.items()
            if not one.is_answered and now - one.received_seconds <= latest
        }
        # A connection that was answered meanwhile, or got a new request, belongs to another one.
        before = statement.possible
        statement.possible = waiting if before is None else waiting & before
    _exclude(statements)
    return [
        one
        for one in statements
        if one.possible and all(by_inode[i].has_left for i in one.possible)
    ]


def _exclude(statements: list[Statement]) -> None:
    """Take the connections that surely belong to one statement from all others."""
    assigned: set[int] = set()
    while True:
        sure = [one.possible for one in statements if one.possible and len(one.possible) == 1]
        new = set().union(*sure) - assigned
        if not new:
            return
        assigned |= new
        for statement in statements:
            if statement.possible and len(statement.possible) > 1:
                statement.possible -= new
