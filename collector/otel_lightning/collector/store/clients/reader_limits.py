"""Limits of a reader's statement: seconds, rows, memory.

DuckDB has no such limits for one statement, and a statement that its Quack server runs cannot be
interrupted. So we run the statement first: on our own connection, which can be interrupted, or in a
separate process if its memory is not bounded. The answer goes into a table in memory. The server
then only reads this table, and a thread drops it.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

import duckdb

from otel_lightning.collector.store.clients.cancellation import Cancellation, CancelledError
from otel_lightning.collector.store.clients.disconnected_clients import ClientWatch
from otel_lightning.collector.store.clients.reader_process import (
    Access,
    ReaderError,
    ReaderProcesses,
)
from otel_lightning.collector.store.sql_text import quote_literal, without_wrapper, wrapped
from otel_lightning.collector.terminal.quantities import number_of

ANSWERS = "lightning_answers"
KEPT_SECONDS = 60.0  # the server starts to read an answer at once, so this is enough time
SOON_SECONDS = 5.0  # likewise, if the answers take more than their share of the memory
SHARE = 0.25
"""Part of DuckDB's memory for all answers; the rest is for storing, and for running statements."""
LOOK_SECONDS, ROOM_SECONDS = 0.2, 20.0
"""How often to look whether there is room for answers, and how long a statement waits for it."""
KEPT_BYTES = """
    SELECT coalesce(sum(memory_usage_bytes + temporary_storage_bytes), 0)::BIGINT
    FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'
"""
"""Bytes of all tables in memory, also of what was spilled to disk."""


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """The limits of one statement with the read-only token; None is no limit."""

    seconds: float | None = None
    rows: int | None = None
    memory_bytes: int | None = None
    """Memory limit of a reader process; None runs every statement in this process."""

    def __bool__(self) -> bool:
        return not (self.seconds is None and self.rows is None and self.memory_bytes is None)


NO_READER_LIMITS = ReaderLimits()


class LimitedReads:
    """Runs readers' statements within limits on a served database, and stores their answers."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, limits: ReaderLimits, memory_bytes: int
    ) -> None:
        """Prepare a served database.

        Args:
            connection: A connection to it.
            limits: The limits of one statement.
            memory_bytes: DuckDB's memory limit.
        """
        self._connection, self._limits = connection, limits
        self._most_bytes = int(SHARE * memory_bytes)
        self._processes: ReaderProcesses | None = None
        self._clients: ClientWatch | None = None
        self._numbers = itertools.count(1)
        self._answered: deque[tuple[float, str]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        threading.Thread(target=self._forget_in_time, name="answers", daemon=True).start()
        connection.execute(f"ATTACH ':memory:' AS {ANSWERS}")

    def served_at(self, address: str, token: str) -> None:
        """Watch the clients of the server, and run in processes of their own what has to.

        Statements with unbounded memory run in separate processes, if memory is limited.

        Args:
            address: Address at which this database is served.
            token: Token with which a reader process reads its tables.
        """
        self._clients = ClientWatch(int(address.rpartition(":")[2]))
        self._clients.start()
        if self._limits.memory_bytes is not None:
            self._processes = ReaderProcesses(Access(address, token, self._limits.memory_bytes))

    @property
    def processes(self) -> ReaderProcesses | None:
        """The processes for statements with unbounded memory; None if memory is not limited."""
        return self._processes

    @property
    def client_watch(self) -> ClientWatch | None:
        """The thread that watches the clients; None before `served_at`."""
        return self._clients

    def close(self) -> None:
        """Stop the reader processes, and watch no more clients."""
        if self._processes:
            self._processes.close()
        if self._clients:
            self._clients.stop()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def answer(self, select: str, cancellation: Cancellation, *, bounded: bool) -> str:
        """Run a SELECT and return a statement that reads its answer, or raises its error.

        Args:
            select: One statement, without a comment or semicolon at its end.
            cancellation: Ends the statement earlier.
            bounded: Whether the statement creates no more data than it reads.
        """
        # With its schema: DuckDB would look for a name of two parts in the store's file, too, and
        # keep it open until the answer is read.
        table = f"{ANSWERS}.main.answer_{next(self._numbers)}"
        self._await_room()
        try:
            with self._clients.watched(cancellation) if self._clients else nullcontext():
                if self._processes and not bounded:
                    self._run_in_process(self._processes, select, table, cancellation)
                else:
                    self._run(select, table, cancellation)
        except ReaderError as error:
            return _error(str(error))
        except (duckdb.InterruptException, CancelledError):
            problem = (
                f"It took longer than {self._limits.seconds:g} seconds, the limit of this token."
            )
            return _error(cancellation.reason or problem)
        except duckdb.Error as error:
            return _error(without_wrapper(str(error)))
        with self._changed:
            self._answered.append((time.monotonic(), table))
            self._changed.notify_all()
        return self._within_rows(table)

    def _run(self, select: str, table: str, cancellation: Cancellation) -> None:
        # One row above the limit shows that the answer is too long.
        rows = None if self._limits.rows is None else self._limits.rows + 1
        cursor = self._connection.cursor()
        with interrupted_after(cursor, self._limits.seconds), cancellation.by(cursor.interrupt):
            cursor.execute(f"CREATE TABLE {table} AS {wrapped(select, rows)}")

    def _run_in_process(
        self, processes: ReaderProcesses, select: str, table: str, cancellation: Cancellation
    ) -> None:
        rows = processes.run(select, self._limits.rows, self._limits.seconds, cancellation)
        cursor, name = self._connection.cursor(), table.replace(".", "_")
        cursor.register(name, rows)
        try:
            cursor.execute(f"CREATE TABLE {table} AS FROM {name}")
        finally:
            cursor.unregister(name)

    def _within_rows(self, table: str) -> str:
        counts = self._connection.cursor().execute(f"SELECT count(*) FROM {table}").fetchall()
        if self._limits.rows is not None and counts[0][0] > self._limits.rows:
            self._forget(table)
            return _error(
                f"The answer has more than {number_of(self._limits.rows, 'row')}, the limit of "
                "this token. "
                f"Add LIMIT, or ask for a sum."
            )
        return f"FROM {table}"

    def _await_room(self) -> None:
        """Wait while the answers take more than their share of the memory.

        Otherwise readers could take all of it, and nothing would be stored meanwhile.
        """
        deadline = time.monotonic() + ROOM_SECONDS
        while self._answered and self._is_full() and time.monotonic() < deadline:
            with self._changed:
                self._changed.wait(LOOK_SECONDS)

    def _is_full(self) -> bool:
        with suppress(duckdb.Error):  # the store may be closed by now
            kept_bytes = self._connection.cursor().execute(KEPT_BYTES).fetchall()[0][0]
            return bool(kept_bytes > self._most_bytes)
        return False

    def _forget_in_time(self) -> None:
        """Drop each answer in its time: one thread does it, since readers may ask many a second."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._answered or self._is_closed)
                if self._is_closed:
                    return
                at, table = self._answered[0]
            seconds_left = (
                at - time.monotonic() + (SOON_SECONDS if self._is_full() else KEPT_SECONDS)
            )
            if seconds_left <= 0:
                self._forget(table)
            with self._changed:
                if seconds_left <= 0:
                    self._answered.popleft()
                    self._changed.notify_all()
                else:
                    self._changed.wait(min(seconds_left, LOOK_SECONDS))

    def _forget(self, table: str) -> None:
        with suppress(duckdb.Error):  # the store may be closed by now
            self._connection.cursor().execute(f"DROP TABLE IF EXISTS {table}")


@contextmanager
def interrupted_after(cursor: duckdb.DuckDBPyConnection, seconds: float | None) -> Iterator[None]:
    """Interrupt the cursor's statement if the block takes longer; None is no limit.

    The statement then raises `duckdb.InterruptException`.
    """
    timer = threading.Timer(seconds or threading.TIMEOUT_MAX, cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _error(reason: str) -> str:
    return f"SELECT error({quote_literal(reason)})"
