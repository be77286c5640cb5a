"""Open a store: the DuckDB file itself, or the running ingester that holds it.

DuckDB lets one process write a file. While `lightning-ingest` holds it, everybody else reaches it
through DuckDB's own client-server protocol (Quack) on loopback: `open_store` finds out by itself.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from otel_lightning.collector.store import migrate
from otel_lightning.collector.store.connection import (
    ROW_GROUP_ROWS,
    SKIPPED_TO,
    Store,
    load_extensions,
)
from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.server_file import Server, read_server
from otel_lightning.collector.store.sql_text import quote_literal

CONFIG = {
    "autoinstall_known_extensions": "false",
    "storage_compatibility_version": "latest",  # older formats have no zstd
}
WRITER = CONFIG | {
    "force_compression": "zstd",  # smaller and cheaper than what DuckDB chooses for long texts
    "checkpoint_threshold": "1GB",  # a checkpoint stalls commits: the loader says when
    "dynamic_or_filter_threshold": f"{SKIPPED_TO}",
    "default_block_size": "65536",  # of 262,144 each long column of a row group wastes half of one
}
ELSEWHERE = "lightning elsewhere"
DAMAGE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.InternalException,
    duckdb.FatalException,
)
ONLY_ITS_USER = 0o077
"""The umask that lets nobody else read a new file."""


def open_store(location: str | Path, *, create: bool = True, read_only: bool = False) -> Store:
    """Open a store: its file, or the running ingester that holds the file.

    Args:
        location: Path of the DuckDB file.
        create: Make the file if there is none.
        read_only: Open for reading only, the file or with the ingester's read-only token. The
            schema stays as it is; opened for writing, it is brought up to date.

    Raises:
        StoreError: If there is no such file, it is not a store, its schema is newer or not one that
            was released, or another process holds it without answering.
    """
    path = Path(location)
    if server := read_server(path):
        with suppress(duckdb.Error):
            return _attach(server, server.reader if read_only else server.token)
    if not path.exists() and (read_only or not create):
        raise StoreError(
            f"There is no store at '{path}'. Start `lightning-ingest --store {path}`, or fill it "
            f"with `lightning-ingest load FILE… --store {path}`."
        )
    store = open_file(path, read_only=read_only)
    try:
        migrate.check(store, path)
        if not read_only:
            migrate.migrate(store)
    except BaseException:
        store.close()
        raise
    return store


def open_file(path: Path, *, read_only: bool) -> Store:
    """Open the file itself, whatever its schema.

    Raises:
        StoreError: If it is not a DuckDB file, is damaged, or another process holds it.
    """
    try:
        if read_only:
            return Store(duckdb.connect(str(path), read_only=True, config=dict(CONFIG)))
        with _private():
            connection = duckdb.connect(str(path), config=dict(WRITER))
        return Store(_with_small_row_groups(connection, path))
    except duckdb.Error as error:
        raise StoreError(_why_not(path, error)) from error


def keep_files_private() -> None:
    """Let nobody else read the files that this process makes from here on.

    DuckDB makes and deletes the log of a store as it works, with the permissions of the process.
    """
    os.umask(ONLY_ITS_USER)


@contextmanager
def _private() -> Iterator[None]:
    former = os.umask(ONLY_ITS_USER)
    try:
        yield
    finally:
        os.umask(former)


def _why_not(path: Path, error: duckdb.Error) -> str:
    if "Could not set lock" in str(error):
        return (
            f"'{path}' is held by another process that answers no SQL. Close that process, "
            f"or open another store with --store. ({error})"
        )
    if "not a valid DuckDB database" in str(error):
        return (
            f"'{path}' is not a DuckDB file, so it cannot be opened as a store. Check the path, or "
            f"choose another with --store. ({error})"
        )
    if isinstance(error, duckdb.IOException) and "Cannot open file" in str(error):
        return f"'{path}' cannot be opened. Check the path and its permissions. ({error})"
    if isinstance(error, DAMAGE):
        return (
            f"'{path}' is damaged or not a store: DuckDB cannot open it. Restore it from a backup: "
            f"the page back-up-and-upgrade says how. ({error})"
        )
    return f"'{path}' cannot be opened as a store. Choose another with --store. ({error})"


def _with_small_row_groups(
    connection: duckdb.DuckDBPyConnection, path: Path
) -> duckdb.DuckDBPyConnection:
    """Attach the file again under its name: only ATTACH can say how large its row groups are.

    A transaction that fills a row group writes it to its place in the file at once, compressed,
    and not to the write-ahead log first; a small one takes little memory to fill.
    """
    name = connection.execute("SELECT current_database()").fetchall()[0][0]
    quoted = '"' + name.replace('"', '""') + '"'
    connection.execute(
        f'ATTACH \':memory:\' AS "{ELSEWHERE}"; USE "{ELSEWHERE}"; DETACH {quoted};'
        f"ATTACH {quote_literal(str(path))} AS {quoted}"
        f" (ROW_GROUP_SIZE {ROW_GROUP_ROWS}, STORAGE_VERSION 'latest');"
        f'USE {quoted}; DETACH "{ELSEWHERE}"'
    )
    return connection


def attach(address: str, token: str) -> duckdb.DuckDBPyConnection:
    """Connect to a served store, which becomes the database `remote`.

    Raises:
        duckdb.Error: If nobody answers there, or the token is wrong.
    """
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    load_extensions(connection)
    connection.execute("SET httpfs_connection_caching = true")  # else each statement opens one
    connection.execute(f"CREATE SECRET (TYPE quack, TOKEN {quote_literal(token)})")
    connection.execute(f"ATTACH {quote_literal(address)} AS remote")
    return connection


def _attach(server: Server, token: str) -> Store:
    return Store(attach(server.sql, token), server)
