"""How long a reader's statement may take, and how many rows it may answer.

DuckDB has no such settings, and nobody can interrupt a statement that its Quack server runs. So
where there are limits, the statement runs on a connection of ours first, which can be interrupted,
and the server only hands out the answer, from a table in memory that soon goes.
"""

import itertools
import threading
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from otel_lightning.collector.store.sql_text import quote_literal

ANSWERS = "lightning_answers"
KEPT_SECONDS = 60.0  # an answer is being handed out from the moment on that it is there


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """What one statement with the read-only token may take; None does not limit it."""

    seconds: float | None = None
    rows: int | None = None

    def __bool__(self) -> bool:
        return self.seconds is not None or self.rows is not None


NO_READER_LIMITS = ReaderLimits()


class Answers:
    """Runs statements within limits on a database that is being served."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, limits: ReaderLimits) -> None:
        self._connection, self._limits = connection, limits
        self._numbers = itertools.count(1)
        connection.execute(f"ATTACH ':memory:' AS {ANSWERS}")

    def answer(self, select: str) -> str:
        """Run a SELECT and return the statement that gives its answer, or says what was too much.

        Args:
            select: One statement, without a comment or semicolon behind it.
        """
        table = f"{ANSWERS}.answer_{next(self._numbers)}"
        try:
            self._run(select, table)
        except duckdb.InterruptException:
            return _error(
                f"It took longer than {self._limits.seconds:g} seconds, the limit of this token."
            )
        except duckdb.Error as error:
            return _error(str(error))
        forgetting = threading.Timer(KEPT_SECONDS, self._forget, [table])
        forgetting.daemon = True
        forgetting.start()
        return self._within_rows(table)

    def _run(self, select: str, table: str) -> None:
        most = "" if self._limits.rows is None else f" LIMIT {self._limits.rows + 1}"
        cursor = self._connection.cursor()
        timer = threading.Timer(self._limits.seconds or threading.TIMEOUT_MAX, cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            cursor.execute(f"CREATE TABLE {table} AS FROM ({select}){most}")
        finally:
            timer.cancel()

    def _within_rows(self, table: str) -> str:
        found = self._connection.cursor().execute(f"SELECT count(*) FROM {table}").fetchall()
        if self._limits.rows is not None and found[0][0] > self._limits.rows:
            self._forget(table)
            return _error(
                f"The answer has more than {self._limits.rows} rows, the limit of this token. "
                f"Add LIMIT, or ask for a sum."
            )
        return f"FROM {table}"

    def _forget(self, table: str) -> None:
        with suppress(duckdb.Error):  # the store may be closed by now
            self._connection.cursor().execute(f"DROP TABLE IF EXISTS {table}")


def _error(reason: str) -> str:
    return f"SELECT error({quote_literal(reason)})"
