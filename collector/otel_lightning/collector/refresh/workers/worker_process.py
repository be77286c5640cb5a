"""A worker: a process that derives batches of traces, without a store. Arrow in, Arrow out.

It reads messages (`message_kinds.py`) from stdin and answers on stdout.
"""

import gc
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from otel_lightning.collector.derive.batches.batch import Batch
from otel_lightning.collector.derive.batches.portions import Portioning
from otel_lightning.collector.derive.batches.tied_keys import TiedKeys
from otel_lightning.collector.process.allocator import share_memory
from otel_lightning.collector.process.child import (
    be_killed_first,
    end_with,
    packed,
    receive,
    send,
    unpacked,
)
from otel_lightning.collector.process.light_imports import leave_out_unused
from otel_lightning.collector.refresh.rollouts import totals
from otel_lightning.collector.refresh.workers import message_kinds

FRAMES_AHEAD = 4
"""Messages that are read before they are needed, so that the sender need not wait for us."""


class Inbox:
    """Reads messages ahead, in a thread of its own."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._queue: queue.Queue[tuple[int, bytes] | None] = queue.Queue(FRAMES_AHEAD)
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> tuple[int, bytes]:
        """Return the next message.

        Raises:
            EOFError: If no more will come.
        """
        item = self._queue.get()
        if item is None:
            raise EOFError
        return item

    def spans(self) -> Iterator[pa.RecordBatch]:
        """Yield the spans of the messages up to `END`."""
        while (message := self.next())[0] != message_kinds.END:
            yield from unpacked(message[1]).to_batches()

    def _read(self) -> None:
        try:
            while True:
                self._queue.put(receive(self._stream))
        except BrokenPipeError:
            self._queue.put(None)
        except Exception:  # noqa: BLE001  without this thread, the others would wait for ever
            traceback.print_exc()
            os._exit(1)


class WorkerBatch:
    """The batch that is being derived."""

    def __init__(self, inbox: Inbox, answers: IO[bytes]) -> None:
        self._inbox, self._answers = inbox, answers
        self._schemas: dict[str, pa.Schema] = {}
        self._name = ""
        self._portioning = Portioning(self._schemas)
        self._begin()

    def do(self, kind: int, content: bytes) -> None:
        """Carry out one message."""
        if kind == message_kinds.NAME:
            self._name = content.decode()
        elif kind == message_kinds.SCHEMA:
            self._schemas[self._name] = pa.ipc.read_schema(pa.py_buffer(content))
        elif kind == message_kinds.BEGIN:
            self._begin()
        elif kind == message_kinds.LOGS:
            self._answer_keys(unpacked(content))
        elif kind == message_kinds.TABLES:
            self._answer_rows()

    def _begin(self) -> None:
        self._batch, self._seconds = Batch(portioning=self._portioning), 0.0

    def _answer_keys(self, logs: pa.Table) -> None:
        spans, began = self._inbox.spans(), time.monotonic()
        try:
            keys = TiedKeys.of(self._batch.read(spans, logs))
        finally:
            for _ in spans:  # after an error: up to the next question
                pass
        self._seconds += time.monotonic() - began
        send(self._answers, message_kinds.KEYS, packed(keys.rows))

    def _answer_rows(self) -> None:
        batch, began = self._batch, time.monotonic()
        parts: dict[str, list[pa.Table]] = defaultdict(list)
        for name, rows in batch.tables(self._schemas):
            self._answer_table(name, rows)
            if name in totals.TOTALED_COLUMNS:
                parts[name].append(rows.select(totals.TOTALED_COLUMNS[name]))
        self._answer_table(totals.TABLE, totals.as_table(totals.totals_of(parts)))
        seconds = self._seconds + time.monotonic() - began
        summary = {"sizes": batch.sizes, "seconds": seconds}
        send(self._answers, message_kinds.DONE, json.dumps(summary).encode())
        self._begin()

    def _answer_table(self, name: str, rows: pa.Table) -> None:
        send(self._answers, message_kinds.NAME, name.encode())
        send(self._answers, message_kinds.ROWS, packed(rows))


def main() -> None:
    """Derive until stdin is closed, or the process that asked for it has ended."""
    threading.Thread(target=end_with, args=[os.getppid()], daemon=True).start()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a print must not end up among the answers
    be_killed_first()
    leave_out_unused()
    share_memory()
    gc.freeze()
    gc.disable()  # the rows hold no cycles, and visiting them again and again takes long
    inbox = Inbox(sys.stdin.buffer)
    try:
        _answer_all(WorkerBatch(inbox, answers), inbox, answers)
    except (EOFError, BrokenPipeError):  # the other process has ended, or has closed its side
        os._exit(0)  # without flushing `answers`, which nobody reads


def _answer_all(work: WorkerBatch, inbox: Inbox, answers: IO[bytes]) -> None:
    send(answers, message_kinds.READY)
    while True:
        message = inbox.next()
        try:
            work.do(*message)
        except (EOFError, BrokenPipeError):
            raise
        except Exception:  # noqa: BLE001  the other process raises it
            send(answers, message_kinds.FAILED, traceback.format_exc().encode())
