"""The SQL server of a store, in the process that holds its file."""

import secrets
import socket
from contextlib import suppress
from pathlib import Path

import duckdb

from otel_lightning.collector.store.clients import read_only
from otel_lightning.collector.store.clients.disconnected_clients import ClientWatch
from otel_lightning.collector.store.clients.page_reads import PageReads
from otel_lightning.collector.store.clients.reader_limits import LimitedReads, ReaderLimits
from otel_lightning.collector.store.errors import StoreError, as_store_error
from otel_lightning.collector.store.extensions import load_extensions
from otel_lightning.collector.store.files import long_texts, spilling
from otel_lightning.collector.store.files.replacement import rewritten

SETTINGS = (
    "SET GLOBAL threads = 1; SET GLOBAL allowed_configs = "
    f"['memory_limit', '{spilling.SETTING}', '{long_texts.SETTING}']"
)
"""Settings of a served store: its configuration is locked, except for the limits on memory, on what
is spilled and on what a checkpoint merges. Each statement runs on the thread that received it.

The number of threads is never changed afterwards: DuckDB would wait for its worker threads, one of
which may be authorizing a statement, and that waits for the change: a deadlock. A second thread
would also spin while it waits, and take a third of the CPU time of a load.
"""
SERVE = "CALL quack_serve('{}', token = '{}')"
PORTS_TO_TRY = 20


class SqlServer:
    """Runs SQL statements of other processes of this user, while this one holds the file."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        path: Path | None,
        limits: ReaderLimits,
        memory_bytes: int,
    ) -> None:
        """Prepare a server, which `start` starts.

        Args:
            connection: A connection to the store.
            path: Path of the store; None for a store without one.
            limits: Limits of one statement that uses the read-only token.
            memory_bytes: DuckDB's memory limit, shared by storing and by all clients.
        """
        self._connection, self._path = connection, path
        load_extensions(connection)
        connection.execute(SETTINGS)
        if path:
            spilling.limit_spilling(connection, path)
        self.tokens = read_only.Tokens(*(secrets.token_hex(16) for _ in read_only.Tokens._fields))
        self._limited_reads = LimitedReads(connection, limits, memory_bytes) if limits else None
        answer = self._limited_reads.answer if self._limited_reads else None
        self.guard = read_only.ReadOnlyGuard(self.tokens, duckdb.connect(), answer)
        """Decides which statements may run, and counts those that run."""
        self.address: str | None = None
        """Address at which clients connect; None before `start`."""

    def start(self) -> str:
        """Listen at a free port of this machine; return the address."""
        may_open = [rewritten(self._path)] if self._path else []
        read_only.prepare(self._connection, self.guard, may_open)
        self.address = _listen(self._connection, self.tokens.writer)
        if self._limited_reads:
            self._limited_reads.served_at(self.address, self.tokens.scanner)
        return self.address

    @property
    def client_watch(self) -> ClientWatch | None:
        """The thread that ends statements of clients that have gone; None without limits."""
        return self._limited_reads.client_watch if self._limited_reads else None

    def page_reads(self) -> PageReads:
        """Return an object that runs the SELECTs of the page."""
        processes = self._limited_reads.processes if self._limited_reads else None
        return PageReads(self._connection, self.guard, processes)

    def restart(self) -> None:
        """Close all sessions of clients, and serve at the same address with the same tokens."""
        with as_store_error():
            self._connection.execute(f"CALL quack_stop('{self.address}')").fetchall()
            self._connection.execute(SERVE.format(self.address, self.tokens.writer))

    def end_statements(self) -> None:
        """End the statements of clients, and let none begin: this process stops serving."""
        self.guard.gate.stop()

    def close(self) -> None:
        """Stop serving. Call it before the connection is closed.

        Otherwise Quack's threads would wait for the GIL, while this thread waits for them.
        """
        if self._limited_reads:
            self._limited_reads.close()
        if self.address:
            with suppress(duckdb.Error):
                self._connection.execute(f"CALL quack_stop('{self.address}')").fetchall()


def _listen(connection: duckdb.DuckDBPyConnection, token: str) -> str:
    """Serve on a free port and return the address. Quack cannot choose a port itself.

    Another process may take the port before Quack binds it: then retry with another port.

    Raises:
        StoreError: If none can be bound, as on a machine without the name localhost.
    """
    for attempt in range(1, PORTS_TO_TRY + 1):
        address = f"quack:localhost:{_free_port()}"
        try:
            connection.execute(SERVE.format(address, token)).fetchall()
        except duckdb.IOException as error:
            if attempt == PORTS_TO_TRY:
                raise StoreError(
                    f"SQL cannot be served on localhost: {error}. Check that /etc/hosts has the "
                    f"line '127.0.0.1 localhost'."
                ) from error
        else:
            return address
    raise AssertionError


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
