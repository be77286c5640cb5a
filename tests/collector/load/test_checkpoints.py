"""Checkpoints of the loader, beside threads that read spans."""

import threading
from pathlib import Path

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.load.checkpoints import STORED_BYTES, Checkpoints
from otel_lightning.collector.store import open_store

LIMIT_S = 30.0


def test_memory_is_released_only_once_no_thread_reads_spans(tmp_path: Path) -> None:
    are_done, released = threading.Event(), threading.Event()

    with open_store(tmp_path / "t.duckdb") as store:
        checkpoints = Checkpoints(store, Alarms(tmp_path / "alarms"), are_done.wait)

        def write() -> None:
            checkpoints.stored(STORED_BYTES)
            released.set()

        writes = threading.Thread(target=write, daemon=True)
        writes.start()
        assert not released.wait(0.5)
        are_done.set()
        writes.join(LIMIT_S)
        assert released.is_set()
