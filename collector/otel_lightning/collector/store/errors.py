"""What goes wrong with a store, in our own exceptions: callers need not know DuckDB."""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

WRAPPING = "\n\nLINE 1: FROM remote.query("
"""Begins the part of an error text that quotes how we wrapped a statement for the server."""


class StoreError(Exception):
    """The store cannot do what was asked; the message says what, which and what next."""


class OutOfMemoryError(StoreError):
    """DuckDB needs more memory than it may take."""


class BrokenStoreError(StoreError):
    """DuckDB gave the database up: nothing works before the process is started again."""


@contextmanager
def as_store_error() -> Iterator[None]:
    """Turn DuckDB's exceptions into ours, with its own words."""
    try:
        yield
    except duckdb.Error as error:
        asked, _, _ = str(error).partition(WRAPPING)
        raise _kind(error)(asked) from error


def is_of_names(error: duckdb.Error) -> bool:
    """Whether a statement failed because a name in it means nothing, so before it ran.

    The server's errors come as text.
    """
    kinds = (duckdb.BinderException, duckdb.CatalogException)
    return isinstance(error, kinds) or "Binder Error" in str(error)[:200]


def _kind(error: duckdb.Error) -> type[StoreError]:
    if isinstance(error, duckdb.OutOfMemoryException):
        return OutOfMemoryError
    if isinstance(error, duckdb.FatalException | duckdb.InternalException):
        return BrokenStoreError
    return StoreError
