"""Retention: what is too old or too much goes with every row that names it, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.retention import forget, used_bytes
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import Store, open_store
from otel_lightning.collector.terminal.quantities import parse_age

DAY = 86_400 * 10**9
NOW = 1_800_000_000 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "t.duckdb") as opened:
        yield opened


def calls(trace: int, spans: range, text: str = "hello") -> bytes:
    """Return a request with model calls of one trace."""
    request = ExportTraceServiceRequest()
    sent = request.resource_spans.add().scope_spans.add().spans
    for number in spans:
        span = sent.add(name="chat", trace_id=trace.to_bytes(16), span_id=number.to_bytes(8))
        for key, value in (
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.request.model", "m"),
            ("lightning.rollout.id", f"rollout {trace}"),
            ("lightning.task.id", f"task {trace}"),
            ("note", text),
        ):
            span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def receive(store: Store, folder: Path, when: int, body: bytes) -> None:
    load(store, [Request("traces", when, body)], dead_letters=folder)
    while refresh(store):
        pass


def traces(store: Store, table: str) -> list[int]:
    rows = store.query(f"SELECT DISTINCT trace_id FROM {table} ORDER BY trace_id")
    return [int(trace, 16) for trace in rows["trace_id"].to_pylist()]


def test_a_trace_goes_when_its_last_span_is_too_old(store: Store, tmp_path: Path) -> None:
    receive(store, tmp_path, NOW - 40 * DAY, calls(1, range(1, 3)))
    receive(store, tmp_path, NOW - 40 * DAY, calls(2, range(1, 2)))
    receive(store, tmp_path, NOW - 10 * DAY, calls(2, range(2, 3)))
    assert forget(store, LoaderSettings(retain_seconds=parse_age("30d")), NOW) == 1
    for table in ("spans", "llm_calls"):
        assert traces(store, table) == [2]
    assert store.query("SELECT count(*) AS n FROM spans")["n"].to_pylist() == [2]
    tasks = store.query("SELECT task_id FROM rollout_tasks")["task_id"].to_pylist()
    assert tasks == ["task 2"]


@pytest.mark.parametrize("table", ['"my notes"', "mine.notes"])
def test_rows_of_a_users_table_go_with_their_trace(
    store: Store, tmp_path: Path, table: str
) -> None:
    receive(store, tmp_path, NOW - 40 * DAY, calls(1, range(1, 2)))
    receive(store, tmp_path, NOW, calls(2, range(1, 2)))
    store.execute("CREATE SCHEMA mine")
    store.execute(f"CREATE TABLE {table} AS SELECT DISTINCT trace_id FROM spans")
    assert forget(store, LoaderSettings(retain_seconds=parse_age("30d")), NOW) == 1
    assert traces(store, table) == [2]


def test_without_a_limit_nothing_is_deleted(store: Store, tmp_path: Path) -> None:
    receive(store, tmp_path, 1, calls(1, range(1, 3)))
    assert forget(store, LoaderSettings(), NOW) == 0
    assert traces(store, "spans") == [1]


def test_the_oldest_traces_go_until_the_rest_fits(store: Store, tmp_path: Path) -> None:
    for trace in range(1, 9):
        noise = "".join(chr(33 + (trace * 7919 + i * i * 31) % 90) for i in range(4_000))
        spans = range(1, 600)
        texts = [calls(trace, range(n, n + 1), noise[n:] + noise[:n]) for n in spans]
        load(
            store,
            [Request("traces", NOW + trace, text) for text in texts],
            dead_letters=tmp_path,
        )
    store.checkpoint()
    cap = used_bytes(store) // 2
    forget(store, LoaderSettings(max_bytes=cap), NOW)
    left = traces(store, "spans")
    assert left == list(range(9 - len(left), 9))
    assert left != list(range(1, 9))
    counts = store.query("SELECT count(*) AS n FROM spans GROUP BY trace_id")["n"].to_pylist()
    assert set(counts) == {len(range(1, 600))}
