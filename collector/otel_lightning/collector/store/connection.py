"""The store: the only module that opens DuckDB.

DuckDB lets one process write a file. While `lightning-ingest` holds it, everybody else reaches it
through DuckDB's own client-server protocol (Quack) on loopback: `open_store` finds out by itself.
"""

import json
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module, resources
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa

from otel_lightning.collector.store import attribute_columns, read_only
from otel_lightning.collector.store.reader_limits import NO_READER_LIMITS, Answers, ReaderLimits
from otel_lightning.collector.store.sql_text import quote_literal

CONFIG = {
    "autoinstall_known_extensions": "false",
    "storage_compatibility_version": "latest",  # older formats have no zstd
}
SKIPPED_TO = 5_000
"""Of a table of which a join needs at most so many rows, only their blocks are unpacked."""
WRITER = CONFIG | {
    "force_compression": "zstd",  # smaller and cheaper than what DuckDB chooses for long texts
    "checkpoint_threshold": "1GB",  # a checkpoint stalls commits: the loader says when
    "dynamic_or_filter_threshold": f"{SKIPPED_TO}",
    "default_block_size": "65536",  # of 262,144 each long column of a row group wastes half of one
}
# While serving, when no other setting can be changed. Queries spill to disk beyond the limit; one
# conversation must fit.
SERVING = "SET GLOBAL allowed_configs = ['threads', 'memory_limit']"
MEMORY_BYTES, LEAST_MEMORY_BYTES = 512_000_000, 256_000_000
CACHE_BYTES = 16_000_000
ROW_GROUP_ROWS = 6 * 2048
ELSEWHERE = "lightning elsewhere"
EXTENSIONS = ("httpfs", "quack")  # quack sends its requests through httpfs


class StoreError(Exception):
    """The store cannot do what was asked; the message says what, which and what next."""


class OutOfMemoryError(StoreError):
    """DuckDB needs more memory than it may take."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where the process that holds a store answers, as written beside the store (mode 0600)."""

    pid: int
    sql: str
    token: str
    reader: str
    http: str
    tls_cert: str | None = None
    """The certificate that HTTP is served with; None where it is plain."""


class Store:
    """One open connection to a store, direct or through the process that holds it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, server: Server | None = None) -> None:
        self._connection = connection
        self._serves: str | None = None
        self._memory_bytes: int | None = None
        self.server = server

    def query(self, sql: str) -> pa.Table:
        """Answer a SELECT as an Arrow table.

        Raises:
            StoreError: If DuckDB refuses the statement; its own words are kept.
        """
        with _as_store_error():
            quicker = attribute_columns.rewrite(sql, self._parse, self._write)
            if quicker != sql:
                with suppress(duckdb.Error):  # it may mean the `attributes` of another table
                    return self._run(quicker).to_arrow_table()
            return self._run(sql).to_arrow_table()

    def stream(self, sql: str, rows_at_once: int) -> Iterator[pa.RecordBatch]:
        """Answer a SELECT batch by batch; nothing else may be asked until it is read.

        Raises:
            StoreError: If DuckDB refuses the statement; its own words are kept.
        """
        with _as_store_error():
            yield from self._run(sql).to_arrow_reader(rows_at_once)

    def execute(self, sql: str) -> None:
        """Run statements for their effect.

        Raises:
            StoreError: If DuckDB refuses one of them.
        """
        with _as_store_error():
            self._run(sql).fetchall()

    def insert(self, table: str, rows: pa.Table) -> None:
        """Append an Arrow table by column name."""
        with _as_store_error(), self._registered(rows) as name:
            target = f"remote.{table}" if self.server else table
            self._connection.execute(f"INSERT INTO {target} BY NAME SELECT * FROM {name}")

    def pick(self, rows: pa.Table, select: str) -> pa.Table:
        """Answer a SELECT over `{rows}`, which stands for an Arrow table."""
        with _as_store_error(), self._registered(rows) as name:
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
        with _as_store_error(), self._registered(rows) as name:
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
        with _as_store_error():
            self._connection.begin()
        try:
            yield
            with _as_store_error():
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
    def threads(self) -> int:
        """How many threads DuckDB works with, for all connections of this process."""
        with _as_store_error():
            found = self._connection.execute("SELECT current_setting('threads')").fetchall()
        return int(found[0][0])

    @threads.setter
    def threads(self, count: int) -> None:
        with _as_store_error():
            self._connection.execute(f"SET GLOBAL threads = {count}")

    def limit(self, memory_bytes: int) -> None:
        """Let DuckDB take so much memory; beyond that it spills to disk.

        The running ingester, where there is one, has its own limit.
        """
        if self.server:
            return
        with _as_store_error():
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
        with _as_store_error():
            self._connection.execute(f"SET GLOBAL memory_limit = '{self._memory_bytes}B'")

    @contextmanager
    def with_room(self) -> Iterator[None]:
        """Let the block take most of the machine's memory, where that is limited."""
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        room = max(self._memory_bytes or 0, machine * 3 // 4)
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
        tokens = read_only.Tokens(secrets.token_hex(16), secrets.token_hex(16))
        address = f"quack:localhost:{_free_port()}"
        with _as_store_error():
            _load_extensions(self._connection)
            self.limit(memory_bytes)
            self._connection.execute(SERVING)
            answer = Answers(self._connection, limits).answer if limits else None
            guard = read_only.Guard(tokens, duckdb.connect(), answer)
            read_only.start(self._connection, address, guard, tokens.writer)
        self._serves = address
        return Server(os.getpid(), address, tokens.writer, tokens.reader, http)

    def close(self) -> None:
        """Close the connection; the last one to close checkpoints."""
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


def open_store(location: str | Path, *, create: bool = True, read_only: bool = False) -> Store:
    """Open a store: its file, or the running ingester that holds the file.

    Args:
        location: Path of the DuckDB file.
        create: Make the file and bring its schema up to date.
        read_only: Open for reading only, the file or with the ingester's read-only token.

    Raises:
        StoreError: If there is no such file, it is not a store, it has a newer schema, or another
            process holds it without answering.
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
    store = Store(_connect(path, read_only=read_only and path.exists()))
    try:
        _migrate(store, path, read_only=read_only)
    except BaseException:
        store.close()
        raise
    return store


def server_file(path: Path) -> Path:
    """Where the process that holds a store says how to reach it."""
    return path.with_name(path.name + ".server")


def write_server(path: Path, server: Server) -> None:
    """Say how to reach the process that holds the store; only its user can read that."""
    target = server_file(path)
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(server), file)
    partial.replace(target)


def read_server(path: Path) -> Server | None:
    """The process that holds the store, or None if none that lives has said so."""
    try:
        server = Server(**json.loads(server_file(path).read_text()))
        os.kill(server.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return server


def copy_to(rows: pa.Table, form: str, file: Path) -> None:
    """Write rows as csv, json or parquet, by DuckDB's own writers."""
    options = "FORMAT json, ARRAY true" if form == "json" else f"FORMAT {form}"
    with _as_store_error(), duckdb.connect() as connection:
        connection.register("answer", rows)
        connection.execute(f"COPY answer TO {quote_literal(str(file))} ({options})")


def is_select(sql: str) -> bool:
    """Whether a text holds exactly one statement and that one only reads.

    Raises:
        StoreError: If it is not SQL.
    """
    with _as_store_error():
        statements = duckdb.extract_statements(sql)
    readers = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    return len(statements) == 1 and statements[0].type in readers


@contextmanager
def _as_store_error() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        asked, _, _ = str(error).partition("\n\nLINE 1: FROM remote.query(")  # our wrapping
        full = isinstance(error, duckdb.OutOfMemoryException)
        raise (OutOfMemoryError if full else StoreError)(asked) from error


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    try:
        if read_only:
            return duckdb.connect(str(path), read_only=True, config=dict(CONFIG))
        return _with_small_row_groups(duckdb.connect(str(path), config=dict(WRITER)), path)
    except duckdb.IOException as error:
        if "lock" in str(error):
            raise StoreError(
                f"'{path}' is held by another process that answers no SQL. Close that process, "
                f"or open another store with --store. ({error})"
            ) from error
        raise StoreError(
            f"'{path}' cannot be opened as a DuckDB store. Check the path, or choose another "
            f"with --store. ({error})"
        ) from error


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


def _attach(server: Server, token: str) -> Store:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    _load_extensions(connection)
    connection.execute("SET httpfs_connection_caching = true")  # each question made one anew
    connection.execute(f"CREATE SECRET (TYPE quack, TOKEN {quote_literal(token)})")
    connection.execute(f"ATTACH {quote_literal(server.sql)} AS remote")
    return Store(connection, server)


def _load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    for name in EXTENSIONS:
        folder = Path(str(import_module(f"duckdb_extension_{name}").__file__)).parent
        file = next(folder.rglob(f"{name}.duckdb_extension"))
        connection.execute(f"LOAD {quote_literal(str(file))}")


def _migrations() -> Sequence[tuple[int, str]]:
    folder = resources.files(__package__) / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [(int(file.name.split("_")[0]), file.read_text()) for file in files]


def _migrate(store: Store, path: Path, *, read_only: bool) -> None:
    have, known = _version(store), _migrations()
    newest = known[-1][0]
    if have > newest:
        raise StoreError(
            f"'{path}' has schema {have}; this otel-lightning knows up to {newest}. "
            f"Upgrade with: pip install -U otel-lightning"
        )
    if read_only:
        return
    for version, sql in known:
        if version > have:
            with store.transaction():
                store.execute(sql)
                store.execute(f"INSERT INTO schema_migrations VALUES ({version}, now()::TIMESTAMP)")


def _version(store: Store) -> int:
    tables = store.query("SELECT table_name FROM duckdb_tables()")["table_name"].to_pylist()
    if "schema_migrations" not in tables:
        return 0
    rows = store.query("SELECT coalesce(max(version), 0) AS version FROM schema_migrations")
    return int(rows["version"][0].as_py())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
