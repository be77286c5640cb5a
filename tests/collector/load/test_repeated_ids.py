"""Spans with the ids of other spans: counted, shown and kept, never dropped without a word."""

import json
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.running import finish

from otel_lightning.collector.check.counts import check_store
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.store import StoreError, open_store
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds


def body(*spans: tuple[int, str, int]) -> bytes:
    """Return a request of spans: id, name, start time."""
    message = ExportTraceServiceRequest()
    sent = message.resource_spans.add().scope_spans.add().spans
    for number, name, start in spans:
        span = sent.add(name=name, trace_id=b"t" * 16, span_id=number.to_bytes(8))
        span.start_time_unix_nano = start
        span.attributes.add(key="gen_ai.request.model").value.string_value = name
    return message.SerializeToString()


def test_another_run_with_the_same_ids_is_rejected_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with open_store(path) as store:
        known = SeenIds(store)
        first = [Request("traces", 1, body((1, "a", 5), (2, "b", 6)))]
        assert load(store, first, known, dead_letters=tmp_path / "letters") == 2
        again = [Request("traces", 2, body((1, "a", 5), (2, "b", 9), (3, "c", 7)))]
        assert load(store, again, known, dead_letters=tmp_path / "letters") == 1
        assert known.repeated == 1
        (row,) = store.query("SELECT signal, reason, file FROM rejected").to_pylist()
        assert row["signal"] == "traces"
        assert row["reason"].startswith("repeated ids: span 0000000000000002 of trace 7474")
        (kept,) = map(json.loads, Path(row["file"]).read_text().splitlines())
        assert (kept["name"], kept["attributes"]) == ("b", {"gen_ai.request.model": "b"})
        found = {finding.name: finding for finding in check_store(store, path)}
    assert found["repeated ids"].value == "1 span not stored; see rejected"
    assert not found["repeated ids"].is_fine


def test_a_batch_that_was_undone_and_comes_again_is_counted_and_kept_once(tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    with open_store(tmp_path / "traces.duckdb") as store:
        known = SeenIds(store)
        load(store, [Request("traces", 1, body((1, "a", 5)))], known, dead_letters=letters)
        again = [Request("traces", 2, body((1, "b", 9))), Request("logs", 2, b"no request")]
        store.execute("ALTER TABLE spool_position RENAME TO away")
        for _ in range(2):
            with pytest.raises(StoreError, match="spool_position"):
                load(store, again, known, end=Position(1, 1), dead_letters=letters)
        assert known.repeated == 0
        store.execute("ALTER TABLE away RENAME TO spool_position")
        load(store, again, known, end=Position(1, 1), dead_letters=letters)
        assert known.repeated == 1
        named = store.query("SELECT file FROM rejected")["file"].to_pylist()
    assert {str(file) for file in letters.iterdir()} == set(named)
    assert len(named) == len(again)
    modes = {file.stat().st_mode & 0o777 for file in letters.iterdir()}
    assert (letters.stat().st_mode & 0o777, modes) == (0o700, {0o600})


def test_bodies_of_the_same_time_are_all_kept(tmp_path: Path) -> None:
    bodies = [b"no request", b"no request either"]
    with open_store(tmp_path / "traces.duckdb") as store:
        load(
            store, [Request("traces", 7, one) for one in bodies], dead_letters=tmp_path / "letters"
        )
        files = store.query("SELECT file FROM rejected")["file"].to_pylist()
    assert sorted(Path(file).read_bytes() for file in files) == bodies


WITHOUT_PANDAS = """
import sys
class Missing:
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.path[:0] = sys.argv[2:]
from test_repeated_ids import test_another_run_with_the_same_ids_is_rejected_and_kept as run
from pathlib import Path
run(Path(sys.argv[1]))
"""


def test_times_that_are_not_whole_microseconds_are_kept_without_pandas_too(tmp_path: Path) -> None:
    # `otel-lightning[collector]` alone does not bring pandas.
    here = Path(__file__).parent
    finish(sys.executable, "-c", WITHOUT_PANDAS, tmp_path, here, here.parents[1], check=True)


def test_what_differs_within_one_request_is_noticed_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "traces.duckdb") as store:
        twice = [Request("traces", 1, body((1, "a", 5), (1, "a", 5), (1, "z", 0)))]
        assert load(store, twice, dead_letters=tmp_path) == 1
        assert store.query("SELECT count(*) AS n FROM rejected")["n"][0].as_py() == 1


def test_what_is_sent_again_as_it_was_is_no_news(tmp_path: Path) -> None:
    with open_store(tmp_path / "traces.duckdb") as store:
        for _ in range(3):
            load(
                store, [Request("traces", 1, body((1, "a", 5), (2, "b", 0)))], dead_letters=tmp_path
            )
        assert store.query("SELECT count(*) AS n FROM rejected")["n"][0].as_py() == 0
