"""Checkpoints of the loader, beside threads that read spans."""

import os
import threading
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.checkpoints import (
    LEAST_BYTES,
    LONG_BYTES,
    STORED_BYTES,
    Checkpoints,
)
from otel_lightning.collector.store import open_store

LIMIT_S = 30.0
TEXTS, TEXT_BYTES, LITTLE_MEMORY, MEMORY = 12, 8_000_000, 64_000_000, 512_000_000


def test_memory_is_released_only_once_no_thread_reads_spans(tmp_path: Path) -> None:
    are_done, released = threading.Event(), threading.Event()

    with open_store(tmp_path / "t.duckdb") as store:
        checkpoints = Checkpoints(store, Alarms(tmp_path / "alarms"), are_done.wait)

        def write() -> None:
            checkpoints.stored(STORED_BYTES, 12_288)
            released.set()

        writes = threading.Thread(target=write, daemon=True)
        writes.start()
        assert not released.wait(0.5)
        are_done.set()
        writes.join(LIMIT_S)
        assert released.is_set()


def long_text(number: int) -> Request:
    """Return a span with one long text that cannot be compressed much."""
    sent = ExportTraceServiceRequest()
    span = sent.resource_spans.add().scope_spans.add().spans.add(name="long")
    span.trace_id, span.span_id = number.to_bytes(16), number.to_bytes(8)
    span.attributes.add(key="text").value.string_value = os.urandom(TEXT_BYTES // 2).hex()
    return Request("traces", 1, sent.SerializeToString())


def test_a_checkpoint_of_long_texts_gets_more_memory(tmp_path: Path) -> None:
    """DuckDB uses a file no more of which a checkpoint has failed."""
    setting = "SELECT current_setting('memory_limit')"
    with open_store(tmp_path / "t.duckdb") as store:
        for number in range(1, TEXTS + 1):
            load(store, [long_text(number)], dead_letters=tmp_path)
        store.limit(LITTLE_MEMORY)
        limit = store.column(setting)
        checkpoints = Checkpoints(store, Alarms(tmp_path / "alarms"), lambda: None)
        checkpoints.stored(LONG_BYTES + 1, 1)
        assert not (tmp_path / "t.duckdb.wal").exists()
        assert store.count("spans") == TEXTS
        assert store.column(setting) == limit


def test_checkpoints_of_many_long_texts_need_memory_for_one_batch(tmp_path: Path) -> None:
    """Not for all texts that were ever stored: also in a process that finds them there."""
    path = tmp_path / "t.duckdb"
    for numbers in (range(1, 9), range(9, 11)):
        with open_store(path) as store:
            checkpoints = Checkpoints(store, Alarms(tmp_path / "alarms"), lambda: None)
            for number in numbers:
                load(store, [long_text(number)], dead_letters=tmp_path)
                store.limit(LITTLE_MEMORY)
                checkpoints.stored(TEXT_BYTES, 1)
                checkpoints.write()
                store.limit(MEMORY)
            assert store.count("spans") == numbers[-1]


def test_a_store_that_merges_no_row_groups_writes_no_small_ones(tmp_path: Path) -> None:
    """Not with each pause of the senders: a search for a trace looks at each of them."""
    log = tmp_path / "t.duckdb.wal"
    with open_store(tmp_path / "t.duckdb") as store:
        store.note_long_texts()
        checkpoints = Checkpoints(store, Alarms(tmp_path / "alarms"), lambda: None)
        load(store, [long_text(1)], dead_letters=tmp_path)
        checkpoints.stored(LEAST_BYTES - 1, 5_000)
        checkpoints.write()
        assert log.exists()
        checkpoints.stored(1, 1)
        checkpoints.write()
        assert not log.exists()
