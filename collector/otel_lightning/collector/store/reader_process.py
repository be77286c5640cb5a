"""A process that runs readers' statements under a hard memory limit.

It fetches the rows of tables from the receiving process and does the rest of the work itself. If a
statement needs too much memory, the operating system refuses it or this process dies. The receiving
process is not affected. The two processes communicate over stdin and stdout.
"""

import contextlib
import json
import os
import queue
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from otel_lightning.collector.orphans import end_with
from otel_lightning.collector.store.attribute_columns import nodes
from otel_lightning.collector.store.sql_text import quote_literal

HEADER = struct.Struct("<BQ")  # kind of the message, and number of bytes that follow
READY, ROWS, FAILED = 0, 1, 2
PROCESSES = 2
ANSWER_BYTES = 64_000_000
SHARE_OF_DUCKDB = 0.6  # of the memory limit; the rest is for memory that DuckDB does not count
START_SECONDS = 60.0


class ReaderError(Exception):
    """A statement was refused or failed; the message is sent to the client."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a reader process reaches the store, and its memory limit."""

    address: str
    token: str
    memory_bytes: int


class ReaderProcesses:
    """A pool of reader processes: starts them on demand and replaces those that died."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._places = threading.BoundedSemaphore(PROCESSES)
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._closed = False

    def run(self, select: str, rows: int | None, seconds: float | None) -> pa.Table:
        """Run one SELECT and return its rows.

        Args:
            select: The statement.
            rows: Row limit; one more row is returned, to show that the limit is exceeded.
            seconds: Time limit; None is no limit.

        Raises:
            ReaderError: If it fails, takes too long, or takes too much memory.
        """
        with self._places:
            process = self._take()
            try:
                table = process.run(select, rows, seconds)
            except ReaderError:
                if process.is_alive:
                    self._idle.put(process)
                raise
            self._idle.put(process)
            return table

    def close(self) -> None:
        """Stop all idle processes."""
        self._closed = True
        while not self._idle.empty():
            self._idle.get().end()

    def _take(self) -> "_Process":
        while not self._idle.empty():
            process = self._idle.get()
            if process.is_alive:
                return process
        return _Process(self._access)


class _Process:
    def __init__(self, access: Access) -> None:
        self._memory_bytes = access.memory_bytes
        command = [sys.executable, "-c", f"from {__name__} import main; main()"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._to: Any = self._process.stdin
        self._from: Any = self._process.stdout
        told = {"address": access.address, "token": access.token, "memory": access.memory_bytes}
        self._ask(told, START_SECONDS)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, select: str, rows: int | None, seconds: float | None) -> pa.Table:
        answer = self._ask({"select": select, "rows": rows}, seconds)
        with pa.ipc.open_stream(answer) as reader:
            return reader.read_all()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, question: dict[str, object], seconds: float | None) -> bytes:
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        # A statement cannot be interrupted over a pipe: kill the process instead.
        timer = threading.Timer(seconds or threading.TIMEOUT_MAX, give_up)
        timer.daemon = True
        timer.start()
        try:
            self._to.write(json.dumps(question).encode() + b"\n")
            self._to.flush()
            kind, size = HEADER.unpack(_read(self._from, HEADER.size))
            answer = _read(self._from, size)
        except OSError as error:
            self.end()
            limit = self._memory_bytes // 10**6
            raise ReaderError(
                f"It took longer than {seconds:g} seconds, the limit of this token."
                if late.is_set()
                else f"It took more than {limit} MB of memory, the limit of this token."
            ) from error
        finally:
            timer.cancel()
        if kind == FAILED:
            raise ReaderError(answer.decode(errors="replace"))
        return answer


def _read(stream: Any, size: int) -> bytes:
    content: bytes = stream.read(size)
    if len(content) < size:
        raise BrokenPipeError
    return content


def main() -> None:
    """Answer statements from stdin until it is closed."""
    import duckdb

    from otel_lightning.collector.store.opening import attach

    told = json.loads(sys.stdin.readline())
    parent = os.getppid()
    threading.Thread(target=end_with, args=[parent], daemon=True).start()
    connection = attach(told["address"], told["token"])
    connection.execute("USE remote; SET threads = 1")
    scans = _Scans(connection, told["address"])
    connection.execute(f"SET memory_limit = '{int(told['memory'] * SHARE_OF_DUCKDB)}B'")
    connection.execute("SET enable_progress_bar = false")
    # Allocate what DuckDB needs once before memory is limited, so that it does not count.
    connection.execute("FROM spans LIMIT 0").fetchall()
    limit_memory(told["memory"])
    _write(READY, b"")
    for line in sys.stdin:
        question = json.loads(line)
        try:
            _write(ROWS, _answer(connection, scans.spread(question["select"]), question["rows"]))
        except (duckdb.Error, MemoryError, ReaderError, pa.ArrowException) as error:
            _write(FAILED, str(error).encode())


class _Scans:
    """Attaches the store once for each table of a statement.

    Quack reads only one table at a time over one connection: a statement that joins two tables of
    one attached database fails.
    """

    def __init__(self, connection: Any, address: str) -> None:
        self._connection, self._address = connection, address
        self._attached = 0

    def spread(self, select: str) -> str:
        """Return the statement with each of its tables read over a connection of its own."""
        tree = json.loads(self._text("json_serialize_sql(?::VARCHAR)", select))
        common = {name.lower() for name in map(_common_table, nodes(tree)) if name}
        scans = [
            node
            for node in nodes(tree)
            if node.get("type") == "BASE_TABLE"
            and node["schema_name"].lower() in {"", "main"}
            and node["table_name"].lower() not in common
        ]
        if len(scans) < 2:  # noqa: PLR2004  one table can be read over the first connection
            return select
        for number, node in enumerate(scans):
            node["catalog_name"], node["schema_name"] = self._database(number), "main"
        return self._text("json_deserialize_sql(?::JSON)", json.dumps(tree))

    def _database(self, number: int) -> str:
        if number == self._attached:
            self._connection.execute(f"ATTACH {quote_literal(self._address)} AS remote_{number}")
            self._attached += 1
        return f"remote_{number}"

    def _text(self, expression: str, argument: str) -> str:
        return str(self._connection.execute(f"SELECT {expression}", [argument]).fetchall()[0][0])


def _common_table(node: dict[str, Any]) -> str | None:
    """Return the name of a common table expression, if the node of the syntax tree is one."""
    return node["key"] if "key" in node and "materialized" in node.get("value", ()) else None


def _answer(connection: Any, select: str, rows: int | None) -> bytes:
    most = "" if rows is None else f" LIMIT {rows + 1}"
    found: pa.Table = connection.execute(f"FROM ({select}){most}").to_arrow_table()
    if found.nbytes > ANSWER_BYTES:
        raise ReaderError(
            f"The answer has {found.nbytes // 10**6} MB, more than {ANSWER_BYTES // 10**6}, the "
            f"limit of this token. Add LIMIT, or ask for less."
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    return bytes(sink.getvalue())


def _write(kind: int, content: bytes) -> None:
    sys.stdout.buffer.write(HEADER.pack(kind, len(content)) + content)
    sys.stdout.buffer.flush()


def limit_memory(memory_bytes: int) -> None:
    """Limit the memory that this process may allocate from now on, by RLIMIT_AS."""
    import resource

    with contextlib.suppress(OSError):  # not Linux: only DuckDB's own limit applies
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  no Path: no memory
            there = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (there + memory_bytes, there + memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
