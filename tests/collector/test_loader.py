"""Loading: each span once, however often and in whatever company it comes, by row groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.loader import Loader, Request, load
from otel_lightning.collector.retention import Keeping
from otel_lightning.collector.spool import Spool, spool_folder
from otel_lightning.collector.store import ROW_GROUP_ROWS, Store, open_store

SECONDS = 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "t.duckdb") as opened:
        yield opened


def request(*spans: tuple[int, int]) -> bytes:
    """Return a request with spans of an id and a start time; 0 is unknown."""
    message = ExportTraceServiceRequest()
    sent = message.resource_spans.add().scope_spans.add().spans
    for number, start in spans:
        span = sent.add(name="s", trace_id=b"t" * 16, span_id=number.to_bytes(8))
        span.start_time_unix_nano = start
    return message.SerializeToString()


def count(store: Store) -> int:
    return int(store.query("SELECT count(*) AS n FROM spans")["n"][0].as_py())


@settings(max_examples=20, deadline=None)
@given(batches=st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=5))
def test_whatever_is_sent_again_is_stored_once(
    batches: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    with open_store(folder / "t.duckdb") as store:
        new = 0
        for batch in batches:  # every fourth span has no start time
            body = request(*((number, number % 4 * SECONDS) for number in batch))
            new += load(store, [Request("traces", 1, body)], dead_letters=folder)
        assert new == count(store) == len({span for batch in batches for span in batch})


def test_a_transaction_that_fills_row_groups_leaves_nothing_to_a_checkpoint(
    store: Store, tmp_path: Path
) -> None:
    bodies = [request(*((n, n) for n in range(1, ROW_GROUP_ROWS + 1)))]
    load(store, [Request("traces", 1, body) for body in bodies], dead_letters=tmp_path)
    log = tmp_path / "t.duckdb.wal"
    assert log.stat().st_size < ROW_GROUP_ROWS * 16  # the ids alone would be more
    sizes = store.query("SELECT DISTINCT count FROM pragma_storage_info('spans')")
    assert max(sizes["count"].to_pylist()) == ROW_GROUP_ROWS


def test_a_body_that_cannot_be_decoded_is_set_aside_and_its_neighbours_are_stored(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.duckdb"
    spool = Spool(spool_folder(path))
    for body in (request((1, 1)), b"\xff not OTLP", request((2, 2))):
        spool.append("traces", body).result(timeout=10)
    with open_store(path) as store:
        loader = Loader(store.cursor(), spool, Keeping(derive=False))
        loader.start()
        loader.stop()
        assert count(store) == len({1, 2})
        files = store.query("SELECT file FROM rejected")["file"].to_pylist()
        assert [Path(file).read_bytes() for file in files] == [b"\xff not OTLP"]
        assert spool.backlog() == 0
    spool.close()
