"""A worker process as its owner sees it: batches to it, keys and rows from it."""

import json
import logging
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from otel_lightning.collector.derive.batches.rollout_sizes import Size
from otel_lightning.collector.derive.batches.tied_keys import TiedKeys
from otel_lightning.collector.process.child import packed, receive, send, unpacked
from otel_lightning.collector.refresh.workers import message_kinds

logger = logging.getLogger(__name__)

PART_BYTES = 8_000_000
"""Spans of about this many bytes are sent in one message."""
ANSWERS_AHEAD = 16
"""Messages that are kept until they are asked for; a worker with more has to wait."""
STALLED_SECONDS = 60.0
"""A worker that owes an answer, uses no CPU and exchanges nothing for this long is killed: somebody
has stopped it (SIGSTOP), or it waits for what never comes."""
DIED, UNREAD = -1, -2
"""Answers of this process instead of the worker's: it has ended; its traces cannot be read here."""
ENDS = (
    *(message_kinds.READY, message_kinds.KEYS, message_kinds.DONE, message_kinds.FAILED),
    *(DIED, UNREAD),
)
"""The last messages of an answer."""
KILLED = "it was killed, perhaps because memory ran out (dmesg may say so)"
STALLED = f"it was killed because it did nothing for {STALLED_SECONDS:g} seconds"
ENDING_SECONDS = 5.0
"""Longest time from the end of a process's answers to its own end."""


class WorkerDiedError(Exception):
    """A worker process ended in the middle of a batch, which has to be derived again."""


class WorkerError(Exception):
    """A batch cannot be derived; the text is the worker's traceback."""


class _Traces(NamedTuple):
    """Whole traces to send to a worker."""

    spans: Iterable[pa.RecordBatch]
    logs: pa.Table
    is_sent: threading.Event


class Worker:
    """One worker process. Wait until `is_ready`, here and after each question."""

    def __init__(self, schemas: Mapping[str, pa.Schema], wake: Callable[[], object]) -> None:
        """Start the process.

        Args:
            schemas: The columns of each derived table.
            wake: Called from another thread when an answer is ready.

        Raises:
            OSError: If the system has no room for another process.
            RuntimeError: If it has none for another thread.
        """
        command = [sys.executable, "-c", f"from {__name__}_process import main; main()"]
        # In a session of its own, so that Ctrl+C reaches only the process that holds the store.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._to: Any = self._process.stdin
        self._wake = wake
        self._answers: queue.Queue[tuple[int, bytes]] = queue.Queue(ANSWERS_AHEAD)
        self._ready, self._died = threading.Event(), threading.Event()
        self._active_at = time.monotonic()  # when it last sent, got or computed something
        self._killed = KILLED  # why it was killed, if it was
        self._error: Exception | None = None  # why traces could not be read
        self._used: str | None = None  # its CPU time, when that was looked at last
        self.sizes: dict[str, Size] = {}
        """Size of each rollout, once all `rows` were read."""
        self.seconds = 0.0
        """Time that the worker took for the batch, once all `rows` were read."""
        self._schemas = dict(schemas)
        self._traces: queue.SimpleQueue[_Traces | None] = queue.SimpleQueue()  # to send
        self._is_sent: threading.Event | None = None  # of the last of them
        self._receiver = threading.Thread(target=self._receive, name="worker", daemon=True)
        self._sender = threading.Thread(target=self._send_all, name="worker", daemon=True)
        try:
            self._receiver.start()
            self._sender.start()
        except RuntimeError:  # the system has no room for another thread
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the last question is answered, or the process has died."""
        return self._ready.is_set()

    def started(self) -> None:
        """Take the worker into service once it is ready for the first time.

        Raises:
            WorkerDiedError: If it could not start.
        """
        self._next()
        for name, schema in self._schemas.items():
            self._send(message_kinds.NAME, name.encode())
            self._send(message_kinds.SCHEMA, memoryview(schema.serialize()))

    def begin(self) -> None:
        """Begin a batch and forget the one before."""
        self._send(message_kinds.BEGIN)

    def read(self, spans: Iterable[pa.RecordBatch], logs: pa.Table) -> None:
        """Send spans and log records of whole traces; `keys` is the answer.

        Another thread iterates over the spans and sends them, so the caller need not wait.
        """
        self._begin_question()
        self._is_sent = threading.Event()
        self._traces.put(_Traces(spans, logs, self._is_sent))

    def await_sent(self) -> None:
        """Wait until no other thread reads or sends spans for this worker."""
        if self._is_sent is not None:
            self._is_sent.wait()

    def keys(self) -> TiedKeys:
        """Return the keys of the traces that were sent last.

        Raises:
            WorkerError: If they cannot be read.
            WorkerDiedError: If the process has ended.
            Exception: The error that iterating over the spans raised.
        """
        return TiedKeys(unpacked(self._next()[1]))

    def ask_rows(self) -> None:
        """Ask for the rows of the batch."""
        self._begin_question()
        self._send(message_kinds.TABLES)

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the derived rows: a table's name and some of its rows.

        Raises:
            WorkerError: If they cannot be derived.
            WorkerDiedError: If the process has ended.
        """
        name = ""
        while True:
            kind, content = self._next()
            if kind == message_kinds.DONE:
                answer = json.loads(content)
                self.sizes = {name: Size(*size) for name, size in answer["sizes"].items()}
                self.seconds = answer["seconds"]
                return
            if kind == message_kinds.NAME:
                name = content.decode()
            else:
                yield name, unpacked(content)

    def kill_if_stalled(self) -> None:
        """Kill the process if it owes an answer and does nothing for `STALLED_SECONDS`.

        Call it from another thread than the owner's, which may wait in a write meanwhile. Where the
        system does not tell the CPU time of a process, nothing is killed.
        """
        used = _cpu_time(self.pid)
        if self.is_ready or used is None or used != self._used:
            self._used, self._active_at = used, time.monotonic()
        elif time.monotonic() - self._active_at > STALLED_SECONDS:
            self._killed = STALLED
            self._process.kill()

    def end(self) -> None:
        """End the process, and the threads that send to it and receive from it."""
        self._process.kill()
        self._traces.put(None)
        # They may wait for room in the queue.
        while self._receiver.is_alive() or self._sender.is_alive():
            with suppress(queue.Empty):
                self._answers.get(timeout=0.01)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not flushed is lost with the process
                stream.close()  # type: ignore[union-attr]  # both are pipes

    def _ended(self) -> int:
        """Return the process's exit status; kill it if only the thread that reads it has ended."""
        try:
            return self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _begin_question(self) -> None:
        self._ready.clear()
        # The receiver has reported the death before: nobody else will set `_ready` again. A write
        # need not fail, because a process that is ending may still hold the other end of the pipe.
        if self._died.is_set():
            self._ready.set()

    def _next(self) -> tuple[int, bytes]:
        kind, content = self._answers.get()
        self._active_at = time.monotonic()
        if kind == DIED:
            status = self._ended()
            reason = f": {self._killed}" if status == -signal.SIGKILL else ""
            raise WorkerDiedError(
                f"The worker process {self.pid} ended with status {status}{reason}."
            )
        if kind == UNREAD and self._error is not None:
            raise self._error
        if kind == message_kinds.FAILED:
            raise WorkerError(content.decode(errors="replace"))
        return kind, content

    def _send(self, kind: int, content: bytes | memoryview = b"") -> None:
        try:
            send(self._to, kind, content)
            self._active_at = time.monotonic()
        except OSError:  # it has died: `_next` reports it
            self._ready.set()

    def _send_all(self) -> None:
        while (traces := self._traces.get()) is not None:
            try:
                self._send_traces(traces.spans, traces.logs)
            except Exception as error:  # noqa: BLE001  `_next` raises it in the owner's thread
                self._error = error
                self._answer(UNREAD, b"")
            traces.is_sent.set()
            del traces  # with the connection of spans that were not read to their end

    def _send_traces(self, spans: Iterable[pa.RecordBatch], logs: pa.Table) -> None:
        # The logs first: with them the worker starts to parse, while spans still come.
        self._send(message_kinds.LOGS, packed(logs))
        some: list[pa.RecordBatch] = []
        size = 0
        for batch in spans:
            if self._died.is_set():
                return
            some.append(batch)
            size += batch.nbytes
            if size > PART_BYTES:
                self._send(message_kinds.SPANS, packed(pa.Table.from_batches(some)))
                some, size = [], 0
        if some:
            self._send(message_kinds.SPANS, packed(pa.Table.from_batches(some)))
        self._send(message_kinds.END)

    def _receive(self) -> None:
        stream: Any = self._process.stdout
        try:
            while True:
                kind, content = receive(stream)
                self._answer(kind, content)
        except (OSError, ValueError):
            pass  # ValueError: `end` closed the stream meanwhile
        except Exception:  # such as an answer that needs too much memory
            logger.exception("The answers of worker process %d cannot be read.", self.pid)
        finally:
            # Whatever it was: otherwise the owner would wait for ever.
            self._died.set()  # before `_ready`, see `_begin_question`
            self._answer(DIED, b"")

    def _answer(self, kind: int, content: bytes) -> None:
        self._answers.put((kind, content))
        # When the queue is full, somebody has to read it, or the worker waits for ever.
        if kind in ENDS or self._answers.full():
            self._ready.set()
            self._wake()


def _cpu_time(pid: int) -> str | None:
    """Return the CPU time that a process has used, as Linux writes it; None if unknown."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program, in brackets, may have spaces. The fields behind it begin with the
    # third, the state; user and system time are the 14th and 15th (proc(5)).
    fields = status.rpartition(")")[2].split()
    return f"{fields[11]} {fields[12]}"
