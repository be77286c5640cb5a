"""Replace the file of a store that is being served, while clients stay connected.

DuckDB's database keeps its name and gets another file. In between, an empty database in memory has
that name, since every statement needs a default database. Sessions of clients do not notice.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from otel_lightning.collector.files.atomic import rename_durably, sync
from otel_lightning.collector.files.reason import reason
from otel_lightning.collector.store.clients.cancellation import Cancellation
from otel_lightning.collector.store.clients.read_only import ReadOnlyGuard
from otel_lightning.collector.store.errors import BrokenStoreError, StoreError
from otel_lightning.collector.store.sql_text import quote_literal, quote_name

if TYPE_CHECKING:
    from otel_lightning.collector.store.connection import Store

logger = logging.getLogger(__name__)

ROW_GROUP_ROWS = 6 * 2048  # a multiple of DuckDB's vector size, 2048
OPTIONS = f"ROW_GROUP_SIZE {ROW_GROUP_ROWS}, STORAGE_VERSION 'latest'"
"""Options with which a store's file is attached."""
REWRITTEN = "lightning_rewritten"
"""Name of the database in the new file, until that takes the old one's place."""
BESIDE = "lightning_beside"
"""An empty database in memory, to be a connection's default while another one is detached."""
PATIENCE_SECONDS = 10.0
"""How long running statements may go on before they are ended."""
ENDING_SECONDS = 30.0
CLOSING_SECONDS = 5.0
LOOK_SECONDS = 0.02
ENDED = "The store was rewritten to forget traces, so this statement was ended. Ask again."


def rewritten(path: Path) -> Path:
    """Return the name under which a store's new file is written."""
    return path.with_name(f".{path.name}.partial")


class ServedFile:
    """The file of a served store. Use it from the thread that writes to the store."""

    def __init__(
        self,
        store: "Store",
        connection: duckdb.DuckDBPyConnection,
        guard: ReadOnlyGuard,
        serve_anew: Callable[[], None],
    ) -> None:
        """Use a served store.

        Args:
            store: A connection to it for this object alone, with its path.
            connection: The same connection.
            guard: Counts the statements of clients, and lets them wait.
            serve_anew: Closes all sessions of clients.
        """
        if store.path is None:
            raise RuntimeError("the store has no file")
        self._store, self._connection, self.path = store, connection, store.path
        self._guard, self._serve_anew = guard, serve_anew
        self.name = str(store.rows("SELECT current_database() AS name")[0]["name"])
        """Name of the database."""

    @contextmanager
    def unwritten(self) -> Iterator[None]:
        """Let statements of clients that write wait until the block ends; others go on."""
        with self._guard.gate.closed_to_writes():
            yield

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Keep DuckDB's memory limit as it is for the block, as a client's statement does."""
        with self._guard.gate.running(Cancellation()):
            yield

    @contextmanager
    def beside(self, path: Path) -> Iterator["Store"]:
        """Attach another file, and yield a connection whose default database it is.

        The served store has the name `name` there. When the block ends, the file is closed and on
        the disk, without a write-ahead log.

        Args:
            path: `rewritten(self.path)`, with the schema of a store.
        """
        other = self._store.cursor()
        other.execute(f"ATTACH {quote_literal(str(path))} AS {REWRITTEN} ({OPTIONS})")
        try:
            other.execute(f"USE {REWRITTEN}")
            yield other
            other.execute(f"CHECKPOINT {REWRITTEN}")
        finally:
            _stand_aside(other)
            other.execute(f"DETACH {REWRITTEN}")
            other.close()
        sync(path)

    def replace(self, path: Path) -> None:
        """Let a finished file take the place of the store's file. Call it in `unchanged`.

        Statements that begin meanwhile wait. Those that run may end, or are ended after a while.

        Args:
            path: The new file.

        Raises:
            StoreError: If statements of clients go on for too long; nothing has changed then.
            BrokenStoreError: If the store cannot be opened any more, until this process ends.
        """
        with self._idle():
            self._store.await_checkpoint()
            _stand_aside(self._store)
            self._store.execute(f"ATTACH OR REPLACE ':memory:' AS {quote_name(self.name)}")
            try:
                self._close_sessions_that_hold_the_file()
                if self.path.with_name(self.path.name + ".wal").exists():
                    raise BrokenStoreError(f"DuckDB left a write-ahead log beside '{self.path}'.")
                rename_durably(path, self.path)
                self._attach()
            # The store has no file in this process any more, whatever the error is.
            except (duckdb.Error, OSError, StoreError) as error:
                raise BrokenStoreError(
                    f"'{self.path}' cannot be opened again: {reason(error)}"
                ) from error
            self._connection.execute(f"USE {quote_name(self.name)}")

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """Run the block while no client runs a statement."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:  # mostly there is a moment without a statement
            with self._guard.alone(self._connection) as is_alone:
                if is_alone:
                    yield
                    return
            time.sleep(LOOK_SECONDS)
        self._guard.gate.cancel_running(ENDED)
        with self._guard.gate.closed(ENDING_SECONDS) as is_idle:
            deadline = time.monotonic() + ENDING_SECONDS
            while not is_idle or self._guard.is_active(self._connection):
                if not is_idle or time.monotonic() > deadline:
                    raise StoreError("A statement of another process goes on for too long.")
                time.sleep(LOOK_SECONDS)
            yield

    def _close_sessions_that_hold_the_file(self) -> None:
        """Make sure that DuckDB has closed the file.

        A client that began a transaction and rests, or that was killed in the middle of an answer,
        keeps it open. Then all sessions are closed; their next statement fails.
        """
        if self._is_closed(CLOSING_SECONDS):
            return
        logger.warning(
            "A session of an SQL client keeps the store's file open: all sessions are closed."
        )
        self._guard.gate.turn_away()  # the server stops only when no statement waits in it
        self._serve_anew()
        if not self._is_closed(CLOSING_SECONDS):
            raise BrokenStoreError(f"Something in this process keeps '{self.path}' open.")

    def _is_closed(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._connection.execute(
                    f"ATTACH {quote_literal(str(self.path))} AS lightning_probe (READ_ONLY)"
                )
            except duckdb.BinderException:  # DuckDB refuses a file that it still has open
                if time.monotonic() > deadline:
                    return False
                time.sleep(LOOK_SECONDS)
            else:
                self._connection.execute("DETACH lightning_probe")
                return True

    def _attach(self) -> None:
        path, name = quote_literal(str(self.path)), quote_name(self.name)
        self._connection.execute(f"ATTACH OR REPLACE {path} AS {name} ({OPTIONS})")


def _stand_aside(store: "Store") -> None:
    """Give a connection another default database, so that its present one can be detached."""
    store.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {BESIDE}; USE {BESIDE}")
