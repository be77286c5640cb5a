"""A process that runs readers' statements under a hard memory limit.

It fetches the rows of tables from the receiving process and does the rest of the work itself. If a
statement needs too much memory, the operating system refuses it or this process dies. The receiving
process is not affected.
"""

import json
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from otel_lightning.collector.process.child import (
    Child,
    LateError,
    Pool,
    be_killed_first,
    end_with,
    limit_memory,
    packed,
    receive,
    send,
    unpacked,
)
from otel_lightning.collector.process.light_imports import leave_out_unused
from otel_lightning.collector.store.clients.cancellation import Cancellation, CancelledError
from otel_lightning.collector.store.clients.reader_scans import REMOTE, Scans
from otel_lightning.collector.store.sql_text import without_wrapper, wrapped

ASK, READY, ROWS, FAILED = range(4)
PROCESSES = 2
ANSWER_BYTES = 64_000_000
BATCH_ROWS = 10_000
"""DuckDB allocates each column of a batch whole, also for an answer of one row."""
SHARE_OF_DUCKDB = 0.6  # of the memory limit; the rest is for memory that DuckDB does not count
START_SECONDS = 60.0


class ReaderError(Exception):
    """A statement was refused or failed; the message is sent to the client."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a reader process reaches the store, and its memory limit."""

    address: str
    token: str
    memory_bytes: int


class ReaderProcesses:
    """A pool of reader processes."""

    def __init__(self, access: Access) -> None:
        self._pool = Pool(lambda: _Process(access), PROCESSES)

    def run(
        self, select: str, rows: int | None, seconds: float | None, cancellation: Cancellation
    ) -> pa.Table:
        """Run one SELECT and return its rows.

        Args:
            select: The statement.
            rows: Row limit; one more row is returned, to show that the limit is exceeded.
            seconds: Time limit; None is no limit.
            cancellation: Ends the statement earlier.

        Raises:
            ReaderError: If it fails, takes too long, takes too much memory, or is cancelled.
        """
        try:
            with self._pool.one() as process, cancellation.by(process.kill):
                return process.run(select, rows, seconds)
        except (ReaderError, CancelledError) as error:
            raise ReaderError(cancellation.reason or str(error)) from None

    def close(self) -> None:
        """Stop all idle processes."""
        self._pool.close()


class _Process(Child):
    def __init__(self, access: Access) -> None:
        super().__init__(__name__)
        self._memory_bytes = access.memory_bytes
        settings = {"address": access.address, "token": access.token, "memory": access.memory_bytes}
        self._answer(settings, START_SECONDS)

    def run(self, select: str, rows: int | None, seconds: float | None) -> pa.Table:
        return unpacked(self._answer({"select": select, "rows": rows}, seconds))

    def _answer(self, question: dict[str, object], seconds: float | None) -> bytes:
        try:
            with self.within(seconds):
                kind, answer = self.ask(ASK, json.dumps(question).encode())
        except LateError as error:
            raise ReaderError(
                f"It took longer than {seconds:g} seconds, the limit of this token."
            ) from error
        except OSError as error:
            text = f"{_too_much(self._memory_bytes)[:-1]}, or its process was killed."
            raise ReaderError(text) from error
        if kind == FAILED:
            raise ReaderError(answer.decode(errors="replace"))
        return answer


def _too_much(memory_bytes: int) -> str:
    return f"It took more than {memory_bytes // 10**6} MB of memory, the limit of this token."


def main() -> None:
    """Answer statements from stdin until it is closed."""
    be_killed_first()
    leave_out_unused()
    import duckdb

    from otel_lightning.collector.store.connect import attach

    out, incoming = sys.stdout.buffer, sys.stdin.buffer
    settings = json.loads(receive(incoming)[1])
    memory_bytes = settings["memory"]
    parent = os.getppid()
    # The end of stdin is noticed only between two statements. This thread ends the process also
    # during a long one.
    threading.Thread(target=end_with, args=[parent], daemon=True).start()
    connection = attach(settings["address"], settings["token"])
    connection.execute(f"USE {REMOTE}; SET threads = 1")
    scans = Scans(connection, settings["address"])
    connection.execute(f"SET memory_limit = '{int(memory_bytes * SHARE_OF_DUCKDB)}B'")
    connection.execute("SET enable_progress_bar = false")
    # Without this, DuckDB would spill to `.tmp` in the current directory, where the other process
    # has files of the same names. They would stay there, with texts of the store, after a kill.
    connection.execute("SET temp_directory = ''")
    # Allocate what DuckDB needs once before memory is limited, so that it does not count.
    connection.execute("FROM spans LIMIT 0").fetchall()
    limit_memory(memory_bytes)
    send(out, READY, b"")
    while True:
        try:
            question = json.loads(receive(incoming)[1])
        except OSError:
            return
        try:
            # A table may have been made since the last statement.
            connection.execute("FROM quack_clear_cache()").fetchall()
            select, names = scans.spread(question["select"])
            send(out, ROWS, _rows(connection, select, names, question["rows"]))
        except (duckdb.OutOfMemoryException, MemoryError):
            send(out, FAILED, _too_much(memory_bytes).encode())
        except (duckdb.Error, ReaderError, pa.ArrowException) as error:
            send(out, FAILED, without_wrapper(str(error)).encode())


def _rows(connection: Any, select: str, names: list[str] | None, rows: int | None) -> memoryview:
    limited = wrapped(select, None if rows is None else rows + 1)
    table: pa.Table = connection.execute(limited).to_arrow_table(BATCH_ROWS)
    if table.nbytes > ANSWER_BYTES:
        raise ReaderError(
            f"The answer has {table.nbytes // 10**6} MB, more than {ANSWER_BYTES // 10**6}, the "
            f"limit of this token. Add LIMIT, or ask for less."
        )
    return packed(table if names is None else table.rename_columns(names))
