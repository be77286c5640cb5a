"""The exceptions of a store. They hide DuckDB's exceptions from callers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

WRAPPING = "\n\nLINE 1: FROM remote.query("
"""From here on, an error text quotes the wrapper that sends a statement to the server: cut it."""

FROM_SERVER = re.compile(r"^Invalid Input Error: (?=[A-Z][\w ]+ Error: )")
"""Prefix that Quack puts before an error of the server, which names its own kind."""

OUT_OF_MEMORY = "SET memory_limit="
"""DuckDB's advice where memory ran out. In a commit or a generated column, that error has
no type of its own."""

GIVEN_UP = "has been invalidated"
"""Part of DuckDB's error for a database that it stopped using after a checkpoint failed."""


class StoreError(Exception):
    """The store refused or failed; the message names the problem, the object and the next step."""


class OutOfMemoryError(StoreError):
    """DuckDB needs more memory than its limit allows."""


class BrokenStoreError(StoreError):
    """DuckDB marked the database as invalid: every statement fails until the process restarts."""


@contextmanager
def as_store_error() -> Iterator[None]:
    """Convert DuckDB's exceptions to ours and keep DuckDB's message."""
    import duckdb  # only here: who only catches a StoreError needs no DuckDB

    try:
        yield
    except duckdb.Error as error:
        text, _, _ = str(error).partition(WRAPPING)
        raise _kind(error)(FROM_SERVER.sub("", text)) from error


def is_of_names(error: "duckdb.Error") -> bool:
    """Return whether a statement failed because a name in it is unknown, that is, before it ran.

    An error from the server has no type of its own, so its text is searched too.
    """
    import duckdb

    kinds = (duckdb.BinderException, duckdb.CatalogException)
    # Only the beginning is searched, because the rest of the text quotes the statement.
    return isinstance(error, kinds) or "Binder Error" in str(error)[:200]


def _kind(error: "duckdb.Error") -> type[StoreError]:
    import duckdb

    kinds = duckdb.TransactionException | duckdb.ConstraintException
    has_other_type = isinstance(error, kinds) and OUT_OF_MEMORY in str(error)
    if has_other_type or isinstance(error, duckdb.OutOfMemoryException):
        return OutOfMemoryError
    # A file that was attached, as ours is, gets no type of its own when a checkpoint fails.
    is_given_up = isinstance(error, duckdb.IOException) and GIVEN_UP in str(error)
    if is_given_up or isinstance(error, duckdb.FatalException | duckdb.InternalException):
        return BrokenStoreError
    return StoreError
