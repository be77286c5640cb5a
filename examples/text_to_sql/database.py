"""Read a SQLite database: its tables, and the rows that a query returns."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

SHOWN_ROWS = 1
SECONDS = 1.0
MOST_ROWS = 10_000


@contextmanager
def reading(database: str) -> Iterator[sqlite3.Connection]:
    """Open a database without the right to write; a statement may take a second."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    end = time.monotonic() + SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
    try:
        yield connection
    finally:
        connection.close()


@cache
def schema(database: str) -> str:
    """Return the statements that made the tables of a database."""
    with reading(database) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")
        return "\n".join(sql for (sql,) in rows)


def rows_of(database: str, query: str) -> list[tuple[object, ...]]:
    """Return the rows of a query.

    Raises:
        sqlite3.Error: If it cannot be run, or not within a second.
    """
    with reading(database) as connection:
        return connection.execute(query).fetchmany(MOST_ROWS)


def shown(database: str, query: str) -> str:
    """Return the first rows of a query, or its error, as text."""
    try:
        rows = rows_of(database, query)[:SHOWN_ROWS]
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return f"Error: {error}"
    return "\n".join(", ".join(map(str, row)) for row in rows) or "no rows"
