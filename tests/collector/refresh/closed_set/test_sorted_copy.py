"""Conversations whose spans lie far apart, and rows that are too much for one commit."""

from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.derive.batches import to_arrow
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh import write_rows
from otel_lightning.collector.refresh.closed_set import sorted_copy
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.store import Store, open_store

SPANS, TALKS = 36_000, 200
CALLS = "SELECT trace_id, rollout_id, step FROM llm_calls ORDER BY ALL"
COPIES = "SELECT table_name FROM duckdb_tables() WHERE table_name = 'gathered'"


def scattered(spans: int) -> Request:
    """Return calls of conversations that take turns, each call in a trace of its own."""
    sent = ExportTraceServiceRequest()
    made = sent.resource_spans.add().scope_spans.add().spans
    for number in range(spans):
        span = made.add(trace_id=(number + 1).to_bytes(16, "big"), span_id=b"\x01" * 8)
        span.start_time_unix_nano = span.end_time_unix_nano = number + 1
        facts = {"operation.name": "chat", "conversation.id": f"talk-{number % TALKS}"}
        for key, value in facts.items():
            span.attributes.add(key=f"gen_ai.{key}").value.string_value = value
    return Request("traces", 1, sent.SerializeToString())


def filled(path: Path, spans: int) -> Store:
    store = open_store(path)
    load(store, [scattered(spans)], dead_letters=path.parent)
    recent_traces(store).clear()  # as if they were received long ago
    return store


@pytest.mark.slow
def test_scattered_conversations_are_read_from_a_sorted_copy_that_does_not_stay(
    tmp_path: Path,
) -> None:
    with filled(tmp_path / "t.duckdb", SPANS) as store:
        assert refresh(store, spans_at_once=6_000) > 0
        assert len(store.query(COPIES)) == 1
        while refresh(store, spans_at_once=6_000):
            pass
        assert len(store.query(COPIES)) == 0
        calls = store.query(CALLS).to_pylist()
    assert calls == [
        {
            "trace_id": f"{number + 1:032x}",
            "rollout_id": f"talk-{number % TALKS}",
            "step": number // TALKS,
        }
        for number in range(SPANS)
    ]


@pytest.mark.slow
def test_what_comes_while_a_copy_is_used_is_derived_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_copy, "SKIPPED_TO", 0)  # as if there were more of them
    spans = 14_000
    with filled(tmp_path / "t.duckdb", spans) as store:
        refresh(store, spans_at_once=1_000)
        assert len(store.query(COPIES)) == 1
        load(store, [scattered(spans + TALKS)], dead_letters=tmp_path)
        while refresh(store, spans_at_once=10_000):
            pass
        (calls,) = store.query("SELECT count(*) FROM llm_calls").column(0).to_pylist()
    assert calls == spans + TALKS


@pytest.mark.slow
def test_while_spans_arrive_all_the_time_no_copy_is_made_for_each_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_copy, "SKIPPED_TO", 0)  # as if there were more of them
    spans, copied = 14_000, []
    with filled(tmp_path / "t.duckdb", spans) as store:
        for number in range(sorted_copy.AT_ONCE):
            load(store, [scattered(spans + number + 1)], dead_letters=tmp_path)
            refresh(store, spans_at_once=1_000)
            copied.append(len(store.query(COPIES)))
        assert copied == [1] + [0] * (sorted_copy.AT_ONCE - 1)
        while refresh(store, spans_at_once=10_000):
            pass
        (calls,) = store.query("SELECT count(*) FROM llm_calls").column(0).to_pylist()
    assert calls == spans + sorted_copy.AT_ONCE


def test_traces_that_came_lately_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_copy, "SKIPPED_TO", 0)  # as if there were more of them
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [scattered(14_000)], dead_letters=tmp_path)
        while refresh(store, spans_at_once=1_000):
            assert len(store.query(COPIES)) == 0
        (calls,) = store.query("SELECT count(*) FROM llm_calls").column(0).to_pylist()
    assert calls == 14_000


def test_rows_that_are_committed_in_parts_are_all_there_and_nothing_stays_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_rows, "BYTES_PER_COMMIT", 1)
    monkeypatch.setattr(to_arrow, "TEXT_AT_ONCE", -1)
    with filled(tmp_path / "t.duckdb", 20) as store:
        assert refresh(store) == 20
        assert refresh(store) == 0
        (calls,) = store.query("SELECT count(*) FROM llm_calls").column(0).to_pylist()
    assert calls == 20
