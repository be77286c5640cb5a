"""One connection to a store, direct or through the process that holds it."""

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa

from otel_lightning.collector import machine
from otel_lightning.collector.store import attribute_columns, read_only
from otel_lightning.collector.store.errors import StoreError, as_store_error, is_of_names
from otel_lightning.collector.store.reader_limits import NO_READER_LIMITS, Answers, ReaderLimits
from otel_lightning.collector.store.server_file import Server
from otel_lightning.collector.store.sql_text import quote_literal

SKIPPED_TO = 5_000
"""DuckDB skips to matching rows only if a join needs at most this many; above it, it scans every
block in between."""
# While serving, when no other setting can be changed. Queries spill to disk beyond the limit; one
# conversation must fit.
SERVING = "SET GLOBAL allowed_configs = ['threads', 'memory_limit']"
MEMORY_BYTES, LEAST_MEMORY_BYTES = 512_000_000, 256_000_000
CACHE_BYTES = 16_000_000
ROW_GROUP_ROWS = 6 * 2048
PORTS_TO_TRY = 20
EXTENSIONS = ("httpfs", "quack")  # quack sends its requests through httpfs


class Store:
    """One open connection to a store, direct or through the process that holds it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, server: Server | None = None) -> None:
        self._connection = connection
        self._serves: str | None = None
        self._answers: Answers | None = None
        self._memory_bytes: int | None = None
        self.server = server

    def query(self, sql: str) -> pa.Table:
        """Answer a SELECT as an Arrow table.

        Raises:
            StoreError: If DuckDB refuses the statement; its own words are kept.
        """
        with as_store_error():
            quicker = attribute_columns.rewrite(sql, self._parse, self._write)
            try:
                return self._run(quicker).to_arrow_table()
            except duckdb.Error as error:
                # It means the `attributes` of another table, which lacks the columns of `spans`.
                if quicker == sql or not is_of_names(error):
                    raise
            return self._run(sql).to_arrow_table()

    def stream(self, sql: str, rows_at_once: int) -> Iterator[pa.RecordBatch]:
        """Answer a SELECT batch by batch; nothing else may be asked until it is read.

        Raises:
            StoreError: If DuckDB refuses the statement; its own words are kept.
        """
        with as_store_error():
            yield from self._run(sql).to_arrow_reader(rows_at_once)

    def execute(self, sql: str) -> None:
        """Run statements for their effect.

        Raises:
            StoreError: If DuckDB refuses one of them.
        """
        with as_store_error():
            self._run(sql).fetchall()

    def insert(self, table: str, rows: pa.Table) -> None:
        """Append an Arrow table by column name."""
        with as_store_error(), self._registered(rows) as name:
            target = f"remote.{table}" if self.server else table
            self._connection.execute(f"INSERT INTO {target} BY NAME SELECT * FROM {name}")

    def pick(self, rows: pa.Table, select: str) -> pa.Table:
        """Answer a SELECT over `{rows}`, which stands for an Arrow table."""
        with as_store_error(), self._registered(rows) as name:
            return self._connection.execute(select.format(rows=name)).to_arrow_table()

    def checkpoint(self) -> bool:
        """Write the log of changes into the file; False if another transaction is in the way."""
        try:
            self._connection.execute("CHECKPOINT")
        except duckdb.TransactionException:
            return False
        except duckdb.Error as error:
            raise StoreError(str(error)) from error
        return True

    def replace(
        self, table: str, rows: pa.Table, where: str = "TRUE", select: str = "FROM {rows}"
    ) -> None:
        """Put `rows` in the place of those that match `where`; all of it or nothing.

        Args:
            table: The table.
            rows: What goes into it, or what `select` makes that from.
            where: Which rows of the table to remove.
            select: A SELECT over `{rows}`, which stands for an Arrow table.
        """
        delete, insert = f"DELETE FROM {table} WHERE {where}", f"INSERT INTO {table} BY NAME"
        if self.server is None:
            with self.transaction(), self._registered(rows) as name:
                self.execute(f"{delete}; {insert} {select.format(rows=name)}")
            return
        staging = f"staging_{secrets.token_hex(8)}"
        with as_store_error(), self._registered(rows) as name:
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
        """Commit what the block does, or undo it if it raises. Only where the store is direct."""
        with as_store_error():
            self._connection.begin()
        try:
            yield
            with as_store_error():
                self._connection.commit()
        except BaseException:
            with suppress(duckdb.Error):
                self._connection.rollback()
            raise

    def cursor(self) -> "Store":
        """A second connection to the same store, for another thread."""
        other = Store(self._connection.cursor(), self.server)
        other._memory_bytes = self._memory_bytes
        return other

    @property
    def memory_bytes(self) -> int | None:
        """The memory that `limit` set, in bytes; None for DuckDB's default."""
        return self._memory_bytes

    @property
    def threads(self) -> int:
        """How many threads DuckDB works with, for all connections of this process."""
        with as_store_error():
            found = self._connection.execute("SELECT current_setting('threads')").fetchall()
        return int(found[0][0])

    @threads.setter
    def threads(self, count: int) -> None:
        with as_store_error():
            self._connection.execute(f"SET GLOBAL threads = {count}")

    def limit(self, memory_bytes: int) -> None:
        """Let DuckDB take so much memory; beyond that it spills to disk.

        The running ingester, where there is one, has its own limit.
        """
        if self.server:
            return
        with as_store_error():
            self._connection.execute(f"SET GLOBAL memory_limit = '{memory_bytes}B'")
        self._memory_bytes = memory_bytes

    def let_go(self) -> None:
        """Let go of what is cached of the file, all but a little, where memory is limited.

        DuckDB keeps what it writes up to the memory limit, and has no other limit for it.
        """
        if self._memory_bytes is None:
            return
        with suppress(duckdb.Error):  # as much is in use at present
            self._connection.execute(f"SET GLOBAL memory_limit = '{CACHE_BYTES}B'")
        with as_store_error():
            self._connection.execute(f"SET GLOBAL memory_limit = '{self._memory_bytes}B'")

    @contextmanager
    def with_room(self) -> Iterator[None]:
        """Let the block take most of the machine's memory, where that is limited."""
        room = max(self._memory_bytes or 0, machine.memory_bytes() * 3 // 4)
        if self._memory_bytes is not None:
            self._connection.execute(f"SET GLOBAL memory_limit = '{room}B'")
        try:
            yield
        finally:
            self.let_go()

    def serve(
        self,
        http: str,
        memory_bytes: int = MEMORY_BYTES,
        limits: ReaderLimits = NO_READER_LIMITS,
    ) -> Server:
        """Let other processes of this user ask SQL while this one holds the file.

        Args:
            http: Where this process receives, for those who look for it.
            memory_bytes: How much DuckDB may take, for storing and for all who ask.
            limits: What one statement of the read-only token may take.
        """
        tokens = read_only.Tokens(*(secrets.token_hex(16) for _ in read_only.Tokens._fields))
        with as_store_error():
            load_extensions(self._connection)
            self.limit(memory_bytes)
            self._connection.execute(SERVING)
            self._answers = Answers(self._connection, limits) if limits else None
            answer = self._answers.answer if self._answers else None
            guard = read_only.Guard(tokens, duckdb.connect(), answer)
            read_only.prepare(self._connection, guard)
            self._serves = _listen(self._connection, tokens.writer)
        if self._answers:
            self._answers.use_processes(self._serves, tokens.scanner)
        return Server(os.getpid(), self._serves, tokens.writer, tokens.reader, http)

    def offer(self, name: str, do: Callable[[str], str]) -> None:
        """Let clients with the token that may do anything call a function of this process.

        Args:
            name: What they call it in SQL: `SELECT name('text')`.
            do: Gets the text and returns the answer; what it raises fails the statement.
        """
        with as_store_error():
            self._connection.create_function(name, do, ["VARCHAR"], "VARCHAR", side_effects=True)

    def close(self) -> None:
        """Close the connection; the last one to close checkpoints."""
        if self._answers:
            self._answers.close()
        if self._serves:  # else its threads would wait for Python while Python waits for them
            with suppress(duckdb.Error):
                self._connection.execute(f"CALL quack_stop('{self._serves}')").fetchall()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _parse(self, sql: str) -> str:
        return self._text("json_serialize_sql(?::VARCHAR)", sql)

    def _write(self, tree: str) -> str:
        return self._text("json_deserialize_sql(?::JSON)", tree)

    def _text(self, expression: str, argument: str) -> str:
        rows = self._connection.execute(f"SELECT {expression}", [argument]).fetchall()
        return str(rows[0][0])

    def _run(self, sql: str) -> duckdb.DuckDBPyConnection:
        if self.server:
            sql = f"FROM remote.query({quote_literal(sql)})"
        return self._connection.execute(sql)

    @contextmanager
    def _registered(self, rows: pa.Table) -> Iterator[str]:
        name = f"rows_{secrets.token_hex(8)}"
        self._connection.register(name, rows)
        try:
            yield name
        finally:
            self._connection.unregister(name)


def load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """Load what speaks to another process's store; the wheels bring it, nothing is downloaded."""
    for name in EXTENSIONS:
        folder = Path(str(import_module(f"duckdb_extension_{name}").__file__)).parent
        file = next(folder.rglob(f"{name}.duckdb_extension"))
        connection.execute(f"LOAD {quote_literal(str(file))}")


def _listen(connection: duckdb.DuckDBPyConnection, token: str) -> str:
    """Serve on a free port and return the address; Quack cannot choose a port itself.

    A port that another process takes between our choice and Quack's is tried again.
    """
    for attempt in range(1, PORTS_TO_TRY + 1):
        address = f"quack:localhost:{_free_port()}"
        try:
            connection.execute(f"CALL quack_serve('{address}', token = '{token}')").fetchall()
        except duckdb.IOException:
            if attempt == PORTS_TO_TRY:
                raise
        else:
            return address
    raise AssertionError


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
