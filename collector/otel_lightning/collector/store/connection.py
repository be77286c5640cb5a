"""One connection to a store, direct or through the process that holds it."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa

from otel_lightning.collector.files.atomic import PRIVATE
from otel_lightning.collector.process import machine
from otel_lightning.collector.store import attribute_columns
from otel_lightning.collector.store.answering import each_batch, telling_silence
from otel_lightning.collector.store.caches import Cached, Caches
from otel_lightning.collector.store.clients.reader_limits import NO_READER_LIMITS, ReaderLimits
from otel_lightning.collector.store.clients.remote_query import ask
from otel_lightning.collector.store.errors import StoreError, as_store_error, is_of_names
from otel_lightning.collector.store.files import long_texts, spilling
from otel_lightning.collector.store.files.replacement import ServedFile
from otel_lightning.collector.store.files.server_file import Server
from otel_lightning.collector.store.memory import MEMORY_BYTES
from otel_lightning.collector.store.sql_server import SqlServer
from otel_lightning.collector.store.transactions import begin

if TYPE_CHECKING:
    from otel_lightning.collector.store.clients.read_only import ReadOnlyGuard
    from otel_lightning.collector.store.files.private_log import PrivateLog

SKIPPED_TO = 5_000
"""DuckDB skips to matching rows only if a join needs at most this many; above it, it scans every
block in between."""
CACHE_BYTES = 48_000_000
USED_BYTES = """
    SELECT coalesce(sum(memory_usage_bytes), 0)::BIGINT
    FROM duckdb_memory() WHERE tag <> 'BASE_TABLE'
"""
"""Bytes that DuckDB uses for anything but cached blocks of tables."""
CHECKPOINT_SECONDS, CHECKPOINT_AGAIN_SECONDS = 30.0, 0.05


class Store:
    """One open connection to a store, direct or through the process that holds it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, server: Server | None = None) -> None:
        self._connection = connection
        self._sql_server: SqlServer | None = None
        self._guard: ReadOnlyGuard | None = None
        """The guard of the SQL server, if this process serves the store."""
        self._memory_bytes: int | None = None
        self._caches = Caches()
        self.server = server
        self.log: PrivateLog | None = None
        """DuckDB's write-ahead log, if others may read it by the umask of this process."""
        self._spills: spilling.SpillFolder | None = None
        self.path: Path | None = None
        """Path by which the store was opened; None for a connection without one."""

    def query(self, sql: str) -> pa.Table:
        """Run a SELECT and return its rows as an Arrow table.

        Raises:
            StoreError: If DuckDB refuses the statement; the message is DuckDB's.
        """
        with as_store_error(), telling_silence(self.server):
            rewritten = attribute_columns.rewrite(sql, self._connection)
            try:
                return self._run(rewritten).to_arrow_table()
            except duckdb.Error as error:
                # The statement reads `attributes` of another table, which has no promoted columns.
                if rewritten == sql or not is_of_names(error):
                    raise
            return self._run(sql).to_arrow_table()

    def count(self, table: str) -> int:
        """Count the rows of a table or view."""
        return int(self.query(f"SELECT count(*) AS n FROM {table}")["n"][0].as_py())

    def rows(self, select: str) -> list[dict[str, Any]]:
        """Run a SELECT and return its rows by column.

        Raises:
            StoreError: If DuckDB refuses the statement; the message is DuckDB's.
        """
        rows: list[dict[str, Any]] = self.query(select).to_pylist()
        return rows

    def column(self, select: str) -> list[Any]:
        """Run a SELECT and return the values of its first column."""
        values: list[Any] = self.query(select).column(0).to_pylist()
        return values

    def stream(self, sql: str, rows_at_once: int) -> Iterator[pa.RecordBatch]:
        """Run a SELECT and yield its rows in batches.

        Run no other statement on this connection before the last batch is read.

        Raises:
            StoreError: If DuckDB refuses the statement; the message is DuckDB's.
        """
        with as_store_error():
            with telling_silence(self.server):
                reader = self._run(sql).to_arrow_reader(rows_at_once)
            yield from each_batch(self.server, reader)

    def execute(self, sql: str) -> None:
        """Run one or more statements and discard their results.

        Raises:
            StoreError: If DuckDB refuses one of them.
        """
        with as_store_error(), telling_silence(self.server):
            self._run(sql).fetchall()
        self._close_log()

    def insert(self, table: str, rows: pa.Table) -> None:
        """Append the rows of an Arrow table, matching columns by name."""
        with as_store_error(), telling_silence(self.server), self._registered(rows) as name:
            target = f"remote.{table}" if self.server else table
            self._connection.execute(f"INSERT INTO {target} BY NAME SELECT * FROM {name}")
        self._close_log()

    def pick(self, rows: pa.Table, select: str) -> pa.Table:
        """Run a statement over an Arrow table, which it names `{rows}`, once; return its rows."""
        with as_store_error(), self._registered(rows) as name:
            return self._connection.execute(select.format(rows=name)).to_arrow_table()

    def checkpoint(self, *, more_memory: bool = False) -> bool:
        """Write the write-ahead log into the file. Return False if a transaction blocks it.

        Args:
            more_memory: Whether to raise the memory limit meanwhile. Very long texts take many
                times their size, and after a failed checkpoint DuckDB stops using the file.
        """
        raised = self._raised_limit() if more_memory else nullcontext()
        try:
            with as_store_error(), raised:
                self._connection.execute("CHECKPOINT")
        except StoreError as error:
            if isinstance(error.__cause__, duckdb.TransactionException):
                return False
            raise
        return True

    def await_checkpoint(self) -> None:
        """Write the write-ahead log into the file, once no transaction blocks it.

        Raises:
            StoreError: If transactions go on for half a minute.
        """
        deadline = time.monotonic() + CHECKPOINT_SECONDS
        while not self.checkpoint():
            if time.monotonic() > deadline:
                raise StoreError("A transaction of another process lasts too long. Try again.")
            time.sleep(CHECKPOINT_AGAIN_SECONDS)

    def replace(
        self, table: str, rows: pa.Table, where: str = "TRUE", select: str = "FROM {rows}"
    ) -> None:
        """Delete the rows that match `where` and insert `rows`, in one transaction.

        Args:
            table: The table.
            rows: The new rows, or the input of `select`.
            where: SQL condition on the rows to delete.
            select: A SELECT that makes the new rows; it names the Arrow table `{rows}`.
        """
        delete, insert = f"DELETE FROM {table} WHERE {where}", f"INSERT INTO {table} BY NAME"
        if self.server is None:
            with self.transaction(), self._registered(rows) as name:
                self.execute(f"{delete}; {insert} {select.format(rows=name)}")
            return
        # The server cannot see an Arrow table of this process: upload the rows first, outside the
        # transaction, so that the transaction is short.
        staging = f"staging_{secrets.token_hex(8)}"
        with as_store_error(), telling_silence(self.server), self._registered(rows) as name:
            self._connection.execute(f"CREATE TABLE remote.{staging} AS FROM {name}")
        try:
            self._atomically(f"{delete}; {insert} {select.format(rows=staging)}")
        finally:
            self.execute(f"DROP TABLE {staging}")

    def _atomically(self, sql: str) -> None:
        try:
            self.execute(f"BEGIN; {sql}; COMMIT")
        except StoreError:
            with suppress(StoreError):
                self.execute("ROLLBACK")
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the changes of the block, or roll them back if it raises. Direct stores only.

        The caches of `cache` are cleared if the changes are not committed, whatever the reason:
        they may hold rows that the store does not have. So the block may put the rows that it
        writes into a cache, and no caller has to remove them.
        """
        with as_store_error():
            begin(self._connection)
        try:
            yield
            with as_store_error():
                self._connection.commit()
            self._close_log()
        except BaseException:  # also Ctrl+C
            try:
                with suppress(duckdb.Error):
                    self._connection.rollback()
            finally:
                self._caches.clear()
            raise

    def cache(self, kind: type[Cached]) -> Cached:
        """Return the cache of a class, for rows that this connection has written.

        There is one of each class, which is made at the first call. `transaction` clears it if
        changes are not committed.
        """
        return self._caches.of(kind)

    def cursor(self) -> "Store":
        """Open a second connection to the same store, for another thread."""
        other = Store(self._connection.cursor(), self.server)
        other._memory_bytes, other._guard = self._memory_bytes, self._guard
        other.path, other.log, other._spills = self.path, self.log, self._spills
        return other

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit that `limit` set, in bytes; None for DuckDB's default."""
        return self._memory_bytes

    @property
    def threads(self) -> int:
        """Number of DuckDB's worker threads, for all connections of this process."""
        with as_store_error():
            row = self._connection.execute("SELECT current_setting('threads')").fetchall()[0]
        return int(row[0])

    @threads.setter
    def threads(self, count: int) -> None:
        with as_store_error():
            self._connection.execute(f"SET GLOBAL threads = {count}")

    def limit(self, memory_bytes: int) -> None:
        """Set DuckDB's memory limit in bytes; beyond it, DuckDB spills to disk.

        Does nothing for a served store: the process that serves it has its own limit.
        """
        if self.server:
            return
        with as_store_error():
            self._connection.execute(f"SET GLOBAL memory_limit = '{memory_bytes}B'")
        self._memory_bytes = memory_bytes

    @property
    def has_long_texts(self) -> bool:
        """Whether the store was noted to have many long texts."""
        return self.path is not None and long_texts.note_file(self.path).exists()

    def note_long_texts(self) -> None:
        """Merge no row groups in checkpoints from now on, also in processes to come.

        Raises:
            OSError: If the note cannot be written.
        """
        with as_store_error():
            self._connection.execute(f"SET GLOBAL {long_texts.SETTING} = 0")
        if self.path is not None:
            long_texts.note_file(self.path).touch(PRIVATE)

    def release_memory(self) -> None:
        """Evict the cached blocks of the file except for `CACHE_BYTES`, if memory is limited.

        DuckDB caches written blocks up to its memory limit. It has no separate limit for this
        cache, so the memory limit is lowered for a moment. A statement that needs more than
        `CACHE_BYTES` at that moment would fail, so nothing is evicted while a client runs one, and
        new ones wait. To let them wait, DuckDB needs a little memory too.
        """
        if self._memory_bytes is None:
            return
        if self.path:
            spilling.limit_spilling(self._connection, self.path)
        guard = self._guard
        with guard.alone(self._connection) if guard else nullcontext(enter_result=True) as is_alone:
            if is_alone:
                used = self._connection.execute(USED_BYTES).fetchall()[0][0]
                lowered = min(used + CACHE_BYTES, self._memory_bytes)
                with suppress(duckdb.Error):  # DuckDB uses more than this at present and refuses
                    self._connection.execute(f"SET GLOBAL memory_limit = '{lowered}B'")
            with as_store_error():
                self._connection.execute(f"SET GLOBAL memory_limit = '{self._memory_bytes}B'")

    @contextmanager
    def with_more_memory(self) -> Iterator[None]:
        """Raise the memory limit to 3/4 of the machine's memory during the block, if one is set."""
        try:
            with self._raised_limit():
                yield
        finally:
            self.release_memory()

    @contextmanager
    def _raised_limit(self) -> Iterator[None]:
        if self._memory_bytes is None:
            yield
            return
        raised = max(self._memory_bytes, machine.memory_bytes() * 3 // 4)
        self._connection.execute(f"SET GLOBAL memory_limit = '{raised}B'")
        try:
            yield
        finally:
            # Refused while more than this is in use; the next release of memory sets it again.
            with suppress(duckdb.Error):
                self._connection.execute(f"SET GLOBAL memory_limit = '{self._memory_bytes}B'")

    def serve(
        self,
        http: str,
        memory_bytes: int = MEMORY_BYTES,
        limits: ReaderLimits = NO_READER_LIMITS,
    ) -> Server:
        """Let other processes of this user run SQL while this process holds the file.

        Args:
            http: Address at which this process receives telemetry, for the server file.
            memory_bytes: DuckDB's memory limit, shared by storing and by all clients.
            limits: Limits of one statement that uses the read-only token.
        """
        with as_store_error():
            self.limit(memory_bytes)
            self._sql_server = SqlServer(self._connection, self.path, limits, memory_bytes)
            self._guard = self._sql_server.guard
            address, tokens = self._sql_server.start(), self._sql_server.tokens
        schema = self.column("SELECT max(version) FROM schema_migrations")[0]
        return Server(os.getpid(), address, tokens.writer, tokens.reader, http, schema=schema)

    @property
    def sql_server(self) -> SqlServer:
        """The SQL server that `serve` started."""
        if self._sql_server is None:
            raise RuntimeError("serve the store first")
        return self._sql_server

    def served_file(self) -> ServedFile:
        """Return an object that replaces the file; the store must be served already."""
        own = Store(self._connection.cursor())
        own.path = self.path
        return ServedFile(own, own._connection, self.sql_server.guard, self.sql_server.restart)

    def register_function(self, name: str, function: Callable[[str], str]) -> None:
        """Let clients that have the writer token call a function of this process.

        Args:
            name: Name of the function; in SQL: `SELECT system.main.name('text')`.
            function: Takes the text and returns the answer. An exception makes the statement fail.
        """
        with as_store_error():
            self._connection.create_function(
                name, function, ["VARCHAR"], "VARCHAR", side_effects=True
            )

    def leave_file_alone(self) -> None:
        """Write no checkpoint when the store is closed: somebody has put another file in place."""
        with as_store_error():
            self._connection.execute("PRAGMA disable_checkpoint_on_shutdown")

    def spill_privately(self, path: Path) -> None:
        """Let the open file at a path spill to disk where only this user and process look."""
        is_client = self.server is not None
        self._spills = spilling.spill_privately(self._connection, path, is_client=is_client)

    def close(self) -> None:
        """Close the connection. Closing the last connection writes a checkpoint."""
        if self._sql_server:
            self._sql_server.close()
        self._connection.close()
        self._spills = None  # the folder goes with the last connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _close_log(self) -> None:
        if self.log is not None:
            self.log.close_to_others()

    def _run(self, sql: str) -> duckdb.DuckDBPyConnection:
        if self.server is None:
            return self._connection.execute(sql)
        return ask(self._connection, sql)

    @contextmanager
    def _registered(self, rows: pa.Table) -> Iterator[str]:
        """Name an Arrow table for one statement, which may read it once."""
        name = f"rows_{secrets.token_hex(8)}"
        # A stream is registered, because DuckDB looks at a table through Python, which takes longer
        # than to insert a few rows.
        self._connection.register(name, rows.__arrow_c_stream__())
        try:
            yield name
        finally:
            self._connection.unregister(name)
