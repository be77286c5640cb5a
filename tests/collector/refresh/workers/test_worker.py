"""A worker process that dies, as its owner sees it."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pyarrow as pa
import pytest
from support.running import LIMIT_S, eventually

from otel_lightning.collector.process.child import HEADER, receive
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.refresh.workers import message_kinds
from otel_lightning.collector.refresh.workers import worker as working
from otel_lightning.collector.refresh.workers.worker import Worker, WorkerDiedError
from otel_lightning.collector.store import OutOfMemoryError, open_store


@pytest.mark.parametrize("question", ["read", "ask_rows"])
def test_a_death_that_was_reported_before_a_question_is_told_again(
    tmp_path: Path, question: str
) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        worker = Worker(schemas(store), lambda: None)
    try:
        eventually(lambda: worker.is_ready)
        worker.started()
        # This end of the pipe stays open, so no question fails to be written. A process that is
        # ending may close its output a moment before its input.
        with Path(f"/proc/{worker.pid}/fd/0").open("rb"):
            os.kill(worker.pid, signal.SIGKILL)
            worker._receiver.join(LIMIT_S)
            if question == "read":
                worker.read([], pa.table({}))
            else:
                worker.ask_rows()
            assert worker.is_ready
            with pytest.raises(WorkerDiedError):
                worker.keys()
    finally:
        worker.end()


def is_in(thread: threading.Thread, function: FunctionType) -> bool:
    """Whether a thread is in the middle of a function."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with open_store(tmp_path / "t.duckdb") as store:
        started = Worker(schemas(store), lambda: None)
    eventually(lambda: started.is_ready)
    started.started()
    yield started
    started.end()


def test_a_message_that_a_worker_cannot_read_ends_it(worker: Worker) -> None:
    worker._ready.clear()
    worker._to.write(HEADER.pack(message_kinds.SCHEMA, 2**62))  # more than any memory
    worker._to.flush()
    eventually(lambda: worker.is_ready)
    with pytest.raises(WorkerDiedError, match="status 1"):
        worker.keys()


def test_an_answer_that_cannot_be_read_counts_as_a_death(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> object:
        raise MemoryError("too large")

    # The thread that receives has to wait in the former function for the next message.
    eventually(lambda: is_in(worker._receiver, receive))
    monkeypatch.setattr(working, "ENDING_SECONDS", 0.01)
    monkeypatch.setattr(working, "receive", fail)
    worker.read([], pa.table({}))
    assert worker._next()[0] in (message_kinds.KEYS, message_kinds.FAILED)  # was waited for before
    with pytest.raises(WorkerDiedError, match="status -9"):
        worker._next()
    assert "too large" in caplog.text
    assert worker.is_ready


def test_the_owner_need_not_wait_until_spans_are_read_and_sent(worker: Worker) -> None:
    may_read = threading.Event()

    def none() -> Iterator[pa.RecordBatch]:
        assert may_read.wait(LIMIT_S)
        yield from ()

    worker.read(none(), pa.table({}))
    assert not worker.is_ready
    waits = threading.Thread(target=worker.await_sent, daemon=True)
    waits.start()
    assert waits.is_alive()
    may_read.set()
    waits.join(LIMIT_S)
    assert not waits.is_alive()
    eventually(lambda: worker.is_ready)


def test_an_error_while_spans_are_read_is_raised_where_the_keys_are_asked_for(
    worker: Worker,
) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        raise OutOfMemoryError("no room")
        yield

    worker.read(broken(), pa.table({}))
    worker.await_sent()
    assert worker.is_ready
    with pytest.raises(OutOfMemoryError, match="no room"):
        worker.keys()


def test_ending_a_worker_ends_the_reading_of_its_spans(worker: Worker) -> None:
    batch = pa.record_batch({"name": ["x" * 100_000]})
    closed = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield batch
        finally:
            closed.set()

    worker.read(endless(), pa.table({}))
    worker.end()
    assert closed.wait(LIMIT_S)
