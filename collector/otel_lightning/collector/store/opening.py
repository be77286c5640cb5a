"""Open a store: the DuckDB file itself, or the running ingester that holds it.

DuckDB lets only one process open a file for writing. While `lightning-ingest` holds the lock, other
processes use DuckDB's client-server protocol (Quack) on loopback. `open_store` chooses by itself.
"""

import logging
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import duckdb

from otel_lightning.collector.files.links import followed
from otel_lightning.collector.files.process_file import run_file, runs_still, starting_file
from otel_lightning.collector.files.reason import NO_SPACE
from otel_lightning.collector.store import migrate
from otel_lightning.collector.store.answering import check_answers
from otel_lightning.collector.store.connect import attach, connect
from otel_lightning.collector.store.connection import SKIPPED_TO, Store
from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.extensions import UNSIGNED
from otel_lightning.collector.store.files import long_texts
from otel_lightning.collector.store.files.private_log import OTHERS, PrivateLog
from otel_lightning.collector.store.files.replacement import OPTIONS
from otel_lightning.collector.store.files.server_file import (
    Server,
    is_of_another_version,
    read_server,
    server_file,
)
from otel_lightning.collector.store.sql_text import quote_literal, quote_name

logger = logging.getLogger(__name__)
StoreLike: TypeAlias = Store | str | Path
"""The path of a store, or an open store."""
CONFIG = {
    "autoinstall_known_extensions": "false",
    "storage_compatibility_version": "latest",  # older formats have no zstd
}
WRITER = CONFIG | {
    "force_compression": "zstd",  # smaller and cheaper than DuckDB's own choice for long texts
    "checkpoint_threshold": "1GB",  # a checkpoint blocks commits, so the loader triggers them
    "dynamic_or_filter_threshold": f"{SKIPPED_TO}",
    # Each long column of a row group wastes half a block on average, so blocks are small. The
    # default is 262,144 bytes.
    "default_block_size": "65536",
}
ELSEWHERE = "lightning elsewhere"
DAMAGE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.InternalException,
    duckdb.FatalException,
)
MAGIC = slice(8, 12)
"""Place of the letters `DUCK` in a file of DuckDB."""
LOCKED = "Could not set lock"
"""Part of DuckDB's error if another process holds the file."""
STARTING_SECONDS = 10.0
"""Longest wait for an ingester that holds the file and answers no SQL yet, or no more."""
MIGRATING_SECONDS = 600.0
"""Longest wait for an ingester that opens the file, and may migrate it."""
TOLD_SECONDS = 3.0
"""After this wait for a migration, a command says that it waits."""
OTHERS_LOG = re.compile(r"WAL does not match|WAL checkpoint iteration does not match")
"""DuckDB's errors if the write-ahead log beside a file is not that file's own."""
AGAIN_SECONDS = 0.1
"""Pause before a file that another process holds is opened again."""


class _HeldError(StoreError):
    """Another process holds the file and answers no SQL."""


def open_store(
    location: str | Path,
    *,
    create: bool = True,
    read_only: bool = False,
    to_serve: bool = False,
) -> Store:
    """Open a store: its file, or the running ingester that holds the file.

    Args:
        location: Path of the DuckDB file.
        create: Create the file if it does not exist.
        read_only: Open the file for reading only, or use the ingester's read-only token. Opening
            for writing runs missing migrations; opening for reading does not.
        to_serve: Let `Store.serve` load its extensions without checking their signatures, which
            saves 0.2 CPU-seconds.

    Raises:
        StoreError: If the file does not exist, is not a store, has a newer or an unreleased
            schema, or is locked by a process that answers no SQL, for some seconds if that is an
            ingester that starts or stops. To write: if it is served by another version.
    """
    path = followed(Path(location))
    waiting = _Waiting(path)
    while True:
        try:
            return _open(path, create=create, read_only=read_only, to_serve=to_serve)
        except _HeldError as error:
            waiting.go_on(error, to_serve=to_serve)
        time.sleep(AGAIN_SECONDS)


class _Waiting:
    """Waits for an ingester that holds a store and answers no SQL yet, or no more."""

    def __init__(self, path: Path) -> None:
        """Begin to wait."""
        self._path, self._began = path, time.monotonic()
        self._deadline = self._began + STARTING_SECONDS
        self._is_told = False

    def go_on(self, error: _HeldError, *, to_serve: bool) -> None:
        """Return if it is worth trying again.

        Raises:
            StoreError: If the process that holds the store is no ingester, or the wait was too
                long.
        """
        now = time.monotonic()
        # An ingester has announced its own start, too.
        opens = not to_serve and _runs(starting_file(self._path))
        if not opens and not _runs(run_file(self._path)):
            raise error
        if opens and now < self._began + MIGRATING_SECONDS:
            self._tell(now)
            self._deadline = now + STARTING_SECONDS
        if now >= self._deadline:
            raise StoreError(
                f"'{self._path}' is held by a lightning-ingest that starts or stops, and has "
                f"answered no SQL for {now - self._began:.0f} seconds. Try again. "
                f"({error.__cause__})"
            ) from error

    def _tell(self, now: float) -> None:
        if self._is_told or now < self._began + TOLD_SECONDS:
            return
        self._is_told = True
        logger.warning(
            "Waiting up to %g s for lightning-ingest, which opens '%s' and migrates it if it is of "
            "an older version.",
            MIGRATING_SECONDS,
            self._path,
        )


def _runs(process_file: Path) -> bool:
    """Return whether there is such a file, and the process that wrote it runs."""
    try:
        return bool(runs_still(process_file))
    except OSError:  # there is no such file
        return False


def _open(path: Path, *, create: bool, read_only: bool, to_serve: bool) -> Store:
    """Open a store as `open_store` does, without waiting for a process that holds the file."""
    unreached = None
    if server := read_server(path):
        check_answers(path, server)
        try:
            attached = _attach(server, server.reader if read_only else server.token)
        except duckdb.Error as error:
            # A process that is stopping may close its port first: then open the file itself.
            unreached = _why_unreached(path, server, error)
        else:
            return _prepared(attached, path, read_only=read_only)
    if not path.exists() and (read_only or not create):
        named = shlex.quote(str(path))
        raise StoreError(
            f"There is no store at '{path}'. Start `lightning-ingest --store {named}`, or fill it "
            f"with `lightning-ingest load FILE… --store {named}`."
        )
    if path.is_dir():
        raise StoreError(f"'{path}' is a folder. Give the file of the store with --store.")
    try:
        store = open_file(path, read_only=read_only, to_serve=to_serve)
    except StoreError as error:
        if LOCKED not in str(error):
            raise
        if reason := _why_another_version(path):
            raise StoreError(reason) from error
        if unreached and read_server(path):  # else it has just begun to stop
            raise StoreError(unreached) from error
        raise _HeldError(str(error)) from error.__cause__
    store.path = path
    try:
        migrate.check(store, path)
        if not read_only:
            migrate.migrate(store)
    # An open connection would keep the file locked.
    except BaseException:
        store.close()
        raise
    return store


def _prepared(attached: Store, path: Path, *, read_only: bool) -> Store:
    """Check a served store that was attached, and let it spill privately; close it on an error."""
    attached.path = path
    try:
        if not read_only:
            check_server(attached)
        attached.spill_privately(path)
    except BaseException:
        attached.close()
        raise
    return attached


def _why_another_version(path: Path) -> str | None:
    """Return why a locked store cannot be reached if another version serves it, otherwise None."""
    if not is_of_another_version(path):
        return None
    return (
        f"'{path}' is served by an otel-lightning of another version: '{server_file(path)}' lacks "
        f"what version {version('otel-lightning')} needs. Use the same version for both: restart "
        "lightning-ingest after an upgrade."
    )


def check_server(store: Store) -> None:
    """Refuse a store that is served by another version: it lacks tables that we need, or we do.

    Raises:
        StoreError: If the process that serves it knows another schema.
    """
    own_schema = migrate.migrations()[-1].version
    if store.server is None or store.server.schema == own_schema:
        return
    age, remedy = "an older", "restart lightning-ingest with this version, which migrates the store"
    if store.server.schema > own_schema:
        age, remedy = "a newer", "use that version, for example: pip install -U otel-lightning"
    raise StoreError(
        f"'{store.path}' is served by process {store.server.pid}, which is of {age} version of "
        f"otel-lightning than this command (schema {store.server.schema or 'of 0.1.0'} and "
        f"{own_schema}): {remedy}."
    )


@contextmanager
def opened(store: StoreLike, *, read_only: bool = False) -> Iterator[Store]:
    """Use an open store and leave it open, or open one and close it afterwards.

    Args:
        store: The path of an existing store, or an open store.
        read_only: Open a path for reading only. Ignored for an open store.

    Raises:
        StoreError: If there is no store at the path, or it cannot be opened.
    """
    if isinstance(store, Store):
        yield store
        return
    with open_store(store, create=False, read_only=read_only) as own_store:
        yield own_store


def open_when_free(path: Path, seconds: float, *, to_serve: bool = False) -> Store:
    """Open a store as `open_store` does; wait while another process holds its file for a moment.

    Args:
        path: Path of the DuckDB file.
        seconds: Longest wait.
        to_serve: As for `open_store`.

    Raises:
        StoreError: As for `open_store`.
    """
    deadline, is_logged = time.monotonic() + seconds, False
    while True:
        try:
            return open_store(path, to_serve=to_serve)
        except StoreError as error:
            if LOCKED not in str(error) or time.monotonic() >= deadline:
                raise
        if not is_logged:
            is_logged = True
            logger.warning("Waiting up to %g s: another process holds '%s'.", seconds, path)
        time.sleep(AGAIN_SECONDS)


def open_file(path: Path, *, read_only: bool, to_serve: bool = False) -> Store:
    """Open the file itself, without checking its schema.

    Raises:
        StoreError: If it is not a DuckDB file, is damaged, or is locked by another process.
    """
    # DuckDB takes `:memory:` and a word before a colon for no file, but not in a whole path.
    path = path.absolute()
    if "?" in str(path):
        raise StoreError(
            f"'{path}' has a question mark, with which DuckDB takes another name for its log. "
            "Rename the file or the folder, or choose another store with --store."
        )
    _check_kind(path)
    try:
        if read_only:
            store = Store(connect(path, CONFIG, read_only=True))
        else:
            store = _open_to_write(path, to_serve=to_serve)
    except duckdb.Error as error:
        raise StoreError(_why_not(path, error)) from error
    store.spill_privately(path)
    return store


def _check_kind(path: Path) -> None:
    """Refuse a JSON, CSV or Parquet file: DuckDB would open a database in memory to query it.

    Everything written into that one is lost when it is closed.
    """
    try:
        with path.open("rb") as file:
            start = file.read(MAGIC.stop)
    except OSError:  # there is no file yet, or DuckDB tells why it cannot be opened
        return
    if start and start[MAGIC] != b"DUCK":
        raise StoreError(
            f"'{path}' is not a DuckDB file, so it cannot be opened as a store. Check the path, or "
            "choose another with --store."
        )


def _open_to_write(path: Path, *, to_serve: bool) -> Store:
    with _private() as previous_mask:
        settings = WRITER | dict(long_texts.config(path))
        connection = connect(path, settings | UNSIGNED if to_serve else settings)
    store = Store(_with_small_row_groups(connection, path))
    if previous_mask & OTHERS != OTHERS:
        store.log = PrivateLog(path)
    return store


def keep_files_private() -> None:
    """Make all files that this process creates from now on readable for its user only.

    DuckDB creates and deletes the write-ahead log while it works, with the umask of the process.
    """
    os.umask(OTHERS)


@contextmanager
def _private() -> Iterator[int]:
    """Make files of the block private; yield the previous umask."""
    previous_mask = os.umask(OTHERS)
    try:
        yield previous_mask
    finally:
        os.umask(previous_mask)


def _why_unreached(path: Path, server: Server, error: duckdb.Error) -> str:
    message = f"'{path}' is served by process {server.pid}, but its SQL cannot be reached: {error}"
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        message += (
            " DuckDB cannot attach a served store with a table that has a foreign key, or a "
            "default from a sequence. If you made such a table, stop lightning-ingest, open the "
            "file with DuckDB and drop the table."
        )
    return message


def _why_not(path: Path, error: duckdb.Error) -> str:
    if LOCKED in str(error):
        return (
            f"'{path}' is held by another process that answers no SQL. Close that process, "
            f"or open another store with --store. ({error})"
        )
    if isinstance(error, duckdb.IOException) and "Cannot open file" in str(error):
        return f"'{path}' cannot be opened. Check the path and its permissions. ({error})"
    if any(full in str(error) for full in NO_SPACE):
        return f"The disk of '{path}' is full. Make room, and try again. ({error})"
    if OTHERS_LOG.search(str(error)):
        return (
            f"'{path}.wal' is DuckDB's log of another file, so '{path}' cannot be opened with it. "
            f"If you put a backup in the place of the store, move the log away. ({error})"
        )
    if isinstance(error, DAMAGE):
        return (
            f"'{path}' is damaged or not a store: DuckDB cannot open it. Restore it from a backup: "
            f"the page back-up-and-upgrade says how. ({error})"
        )
    return f"'{path}' cannot be opened as a store. Choose another with --store. ({error})"


def _with_small_row_groups(
    connection: duckdb.DuckDBPyConnection, path: Path
) -> duckdb.DuckDBPyConnection:
    """Attach the file again under its name, because only ATTACH has the option ROW_GROUP_SIZE.

    A transaction that fills a row group writes it, compressed, straight into the file, not to the
    write-ahead log first. A small row group needs little memory until it is full.

    DETACH writes a checkpoint if there is a log. So the log of a process that was killed in the
    middle of one ends here: DuckDB 1.5.5 must not write on behind the mark of such a checkpoint
    (https://github.com/duckdb/duckdb/pull/24260).
    """
    name = connection.execute("SELECT current_database()").fetchall()[0][0]
    quoted = quote_name(name)
    connection.execute(
        f'ATTACH \':memory:\' AS "{ELSEWHERE}"; USE "{ELSEWHERE}"; DETACH {quoted};'
        f"ATTACH {quote_literal(str(path))} AS {quoted} ({OPTIONS});"
        f'USE {quoted}; DETACH "{ELSEWHERE}"'
    )
    return connection


def _attach(server: Server, token: str) -> Store:
    return Store(attach(server.sql, token), server)
