"""SELECTs of the page, in the process that serves the store, each within limits.

The page's own statements bind their parameters and are bounded. They run on a connection of their
own that is interrupted after some seconds. (A reader process cannot run them: it would fetch whole
tables, because DuckDB sends it rows before it filters them.) A statement that a person typed is
checked as one of the read-only token, and runs in a reader process if its memory is unbounded.
"""

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from otel_lightning.collector.store.clients.cancellation import Cancellation, CancelledError
from otel_lightning.collector.store.clients.read_only import EXPLAIN, ReadOnlyGuard
from otel_lightning.collector.store.clients.reader_limits import interrupted_after
from otel_lightning.collector.store.clients.reader_process import ReaderError, ReaderProcesses
from otel_lightning.collector.store.clients.statement_gate import ClosedGateError
from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.sql_text import without_wrapper, wrapped

ANSWER_BYTES = 64_000_000


class PageReads:
    """Runs SELECTs on a served store; safe for several threads."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        guard: ReadOnlyGuard,
        processes: ReaderProcesses | None,
    ) -> None:
        """Use a served store.

        Args:
            connection: A connection to it; each statement gets a cursor of its own.
            guard: Checks typed statements.
            processes: Run typed statements with unbounded memory; None runs them in this process.
        """
        self._connection, self._guard, self._processes = connection, guard, processes

    def ask(
        self,
        select: str,
        parameters: Mapping[str, Any],
        seconds: float,
        cancellation: Cancellation | None = None,
    ) -> pa.Table:
        """Run one of our own SELECTs.

        Args:
            select: The statement, with parameters such as `$rollout`.
            parameters: A value for each parameter of the statement.
            seconds: Time limit.
            cancellation: Ends the statement earlier.

        Raises:
            StoreError: If it fails, takes too long, or is cancelled.
        """
        cancellation = cancellation or Cancellation()
        # A connection of its own: an interruption ends this statement and no other thread's.
        cursor = self._connection.cursor()
        try:
            with (
                self._guard.gate.running(cancellation),
                interrupted_after(cursor, seconds),
                cancellation.by(cursor.interrupt),
            ):
                return cursor.execute(select, dict(parameters)).to_arrow_table()
        except (duckdb.InterruptException, CancelledError) as error:
            problem = f"It took longer than {seconds:g} seconds."
            raise StoreError(cancellation.reason or problem) from error
        except (duckdb.Error, ClosedGateError) as error:
            raise StoreError(str(error)) from error
        finally:
            cursor.close()

    def ask_typed(
        self, select: str, rows: int, seconds: float, cancellation: Cancellation
    ) -> pa.Table:
        """Run a SELECT that a person typed, if the read-only token may run it.

        Args:
            select: The statement.
            rows: Row limit; one more row is returned, to show that the limit is exceeded.
            seconds: Time limit.
            cancellation: Ends the statement earlier.

        Raises:
            StoreError: If it is refused, fails, takes too long, answers too much, or is cancelled.
        """
        if EXPLAIN.match(select):
            raise StoreError("EXPLAIN works in `lightning-ingest sql`, not on the page.")
        if reason := self._guard.refusal(select):
            raise StoreError(reason.replace("This token", "This page"))
        plain, bounded = self._guard.normalized(select)
        if bounded or self._processes is None:
            try:
                table = self.ask(wrapped(plain, rows + 1), {}, seconds, cancellation)
            except StoreError as error:
                raise StoreError(without_wrapper(str(error))) from error
        else:
            try:
                table = self._processes.run(plain, rows, seconds, cancellation)
            except ReaderError as error:
                raise StoreError(str(error).replace("this token", "this page")) from error
        if table.nbytes > ANSWER_BYTES:
            raise StoreError(
                f"The answer has {table.nbytes // 10**6} MB, more than {ANSWER_BYTES // 10**6}, "
                f"the limit of this page. Add LIMIT, or ask for less."
            )
        return table
