"""A worker process that dies, as its owner sees it."""

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from support.running import LIMIT_S, eventually

from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.refresh.worker import Worker, WorkerDiedError
from otel_lightning.collector.store import open_store


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
