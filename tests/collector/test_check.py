"""`lightning-ingest check --deep`: what does not agree is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.agreement import check_deep
from otel_lightning.collector.loader import Request, load
from otel_lightning.collector.refresh import refresh
from otel_lightning.collector.spool import Spool, spool_folder
from otel_lightning.collector.store import Store, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """One model call, stored and derived."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    span = spans.add(name="chat", trace_id=b"t" * 16, span_id=b"s" * 8)
    span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
    with open_store(path) as opened:
        load(opened, [Request("traces", 1, request.SerializeToString())], dead_letters=path.parent)
        while refresh(opened):
            pass
        yield opened


def unwell(store: Store, path: Path) -> list[str]:
    return [finding.name for finding in check_deep(store, path) if not finding.well]


def test_a_sound_store_agrees(store: Store, path: Path) -> None:
    assert unwell(store, path) == []


def test_a_span_that_is_there_twice_is_named(store: Store, path: Path) -> None:
    store.execute("INSERT INTO spans FROM spans")
    assert unwell(store, path) == ["spans twice"]


def test_a_derived_row_without_its_trace_is_named(store: Store, path: Path) -> None:
    store.execute("DELETE FROM spans")
    assert "llm_calls of nothing" in unwell(store, path)


def test_a_damaged_spool_is_named(store: Store, path: Path) -> None:
    spool = Spool(spool_folder(path))
    for body in (b"first", b"second"):
        spool.append("traces", body).result(timeout=10)
    spool.close()
    file = next(spool_folder(path).glob("*.spool"))
    file.write_bytes(file.read_bytes().replace(b"second", b"sec0nd"))
    assert unwell(store, path) == ["spool"]
