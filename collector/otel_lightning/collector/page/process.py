"""Processes that write the pages, so that no page delays an acknowledgement.

A page process turns rows into HTML. It has no connection to the store: it names a statement of the
folder `sql` with its parameters, and the receiving process runs it within limits and sends the rows
back. Both talk over the page process's stdin and stdout.
"""

import json
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import pyarrow as pa

from otel_lightning.collector.store import StoreError
from otel_lightning.collector.store.page_reads import PageReads

HEADER = struct.Struct("<BQ")  # kind of the message, and number of bytes that follow
REQUEST, ROWS, FAILED, ASK, TYPED, ANSWER, READY = range(7)
PROCESSES = 2
PAGE_SECONDS = 30.0  # for a whole page
START_SECONDS = 60.0
STATEMENT_SECONDS = 5.0
TYPED_SECONDS = 10.0
MEMORY_BYTES = 512_000_000


class PageError(Exception):
    """A page that could not be written; the message is shown."""


@dataclass(frozen=True, slots=True)
class Request:
    """A GET request for a page, and facts of this process that it shows."""

    path: str
    query: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Pages:
    """A pool of page processes: starts them when they are needed, replaces those that died."""

    def __init__(self, reads: PageReads) -> None:
        self._reads = reads
        self._places = threading.BoundedSemaphore(PROCESSES)
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()

    def write(self, request: Request) -> Answer:
        """Write the page for a request.

        Raises:
            PageError: If it takes too long, too much memory, or fails.
        """
        with self._places:
            process = self._take()
            try:
                return process.write(request)
            finally:
                if process.is_alive:
                    self._idle.put(process)

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Run a statement of the folder `sql`, outside a page.

        Raises:
            StoreError: If it fails or takes too long.
        """
        return self._reads.ask(sql_text(name), parameters, STATEMENT_SECONDS)

    def close(self) -> None:
        """Stop all idle processes."""
        while not self._idle.empty():
            self._idle.get().end()

    def _take(self) -> "_Process":
        while not self._idle.empty():
            process = self._idle.get()
            if process.is_alive:
                return process
        return _Process(self._reads)


class _Process:
    def __init__(self, reads: PageReads) -> None:
        self._reads = reads
        command = [
            sys.executable, "-c", "from otel_lightning.collector.page.child import main; main()",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._to: Any = self._process.stdin
        self._from: Any = self._process.stdout
        self._converse(REQUEST, json.dumps({"memory": MEMORY_BYTES}).encode(), START_SECONDS)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def write(self, request: Request) -> Answer:
        asked = {"path": request.path, "query": request.query, "facts": dict(request.facts)}
        answer = self._converse(REQUEST, json.dumps(asked).encode(), PAGE_SECONDS)
        head, _, body = answer.partition(b"\n")
        told = json.loads(head)
        return Answer(told["status"], told["type"], body, tuple(map(tuple, told["headers"])))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _converse(self, kind: int, content: bytes, seconds: float) -> bytes:
        """Send a message, answer the questions of the process, and return its last message."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            while True:
                send(self._to, kind, content)
                answered, answer = receive(self._from)
                if answered in (ANSWER, READY):
                    return answer
                if answered == FAILED:
                    raise PageError(answer.decode(errors="replace"))
                kind, content = self._rows(answered, json.loads(answer))
        except OSError as error:
            self.end()
            raise PageError(
                f"The page took longer than {seconds:g} seconds."
                if late.is_set()
                else f"The page took more than {MEMORY_BYTES // 10**6} MB of memory, or its "
                f"process ended."
            ) from error
        finally:
            timer.cancel()

    def _rows(self, kind: int, question: Mapping[str, Any]) -> tuple[int, bytes]:
        try:
            if kind == TYPED:
                rows = self._reads.ask_typed(question["select"], question["rows"], TYPED_SECONDS)
            else:
                text, parameters = sql_text(question["statement"]), question["parameters"]
                rows = self._reads.ask(text, parameters, STATEMENT_SECONDS)
        except StoreError as error:
            return FAILED, str(error).encode()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return ROWS, bytes(sink.getvalue())


@cache
def sql_text(name: str) -> str:
    """Return the text of a statement in the folder `sql`, with its parameters.

    Raises:
        KeyError: If there is no such statement.
    """
    known = {file.name for file in (resources.files(__package__) / "sql").iterdir()}
    if f"{name}.sql" not in known:
        raise KeyError(name)
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def send(stream: Any, kind: int, content: bytes) -> None:
    """Write one message.

    Raises:
        OSError: If the other process has ended.
    """
    stream.write(HEADER.pack(kind, len(content)) + content)
    stream.flush()


def receive(stream: Any) -> tuple[int, bytes]:
    """Read one message: its kind and content.

    Raises:
        OSError: If the other process has ended.
    """
    kind, size = HEADER.unpack(_exactly(stream, HEADER.size))
    return kind, _exactly(stream, size)


def _exactly(stream: Any, size: int) -> bytes:
    content: bytes = stream.read(size)
    if len(content) < size:
        raise BrokenPipeError
    return content
