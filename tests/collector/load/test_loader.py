"""Loading: each span once, however often and in whatever company it comes, by row groups."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.examples import examples
from support.running import LIMIT_S, eventually

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.load import checkpoints
from otel_lightning.collector.load import loader as loader_module
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.read_ahead import BATCH_BYTES
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import (
    LEAST_MEMORY_BYTES,
    ROW_GROUP_ROWS,
    Store,
    open_store,
)
from otel_lightning.collector.store.deduplication.bloom_filter import BloomFilter
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

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


ID_AND_START = st.tuples(st.integers(1, 9), st.integers(0, 3))


def test_a_span_that_comes_twice_in_one_transaction_is_stored_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("otel_lightning.collector.load.batches.DECODE_BYTES", 1)  # each by itself
    bodies = [request((1, 5), (2, 5)), request((2, 5), (3, 5)), b"\xff", request((1, 5), (4, 5))]
    new = load(
        store, [Request("traces", n, b) for n, b in enumerate(bodies)], dead_letters=tmp_path
    )
    assert new == count(store) == 4
    assert store.query("SELECT count(*) AS n FROM rejected")["n"][0].as_py() == 1


@pytest.mark.parametrize("remembers", [True, False])
@examples(20)
@given(batches=st.lists(st.lists(ID_AND_START, max_size=6), max_size=5))
def test_records_that_are_sent_again_are_stored_once_as_they_came_first(
    remembers: bool,  # noqa: FBT001  pytest passes it by name
    batches: list[list[tuple[int, int]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    first: dict[int, int] = {}
    with open_store(folder / "t.duckdb") as store:
        known = SeenIds(store)
        for batch in batches:
            one = Request("traces", 1, request(*((n, at * SECONDS) for n, at in batch)))
            before = len(first)
            for number, start in batch:
                first.setdefault(number, start)
            new = load(store, [one], known if remembers else None, dead_letters=folder)
            assert new == len(first) - before
        rows = store.query("SELECT span_id, coalesce(epoch(start_time), 0) AS at FROM spans")
    stored = sorted((int(row["span_id"], 16), int(row["at"])) for row in rows.to_pylist())
    assert stored == sorted(first.items())


@pytest.mark.slow
def test_a_store_outgrows_what_its_filter_was_made_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("otel_lightning.collector.store.deduplication.seen_ids.LEAST_ROWS", 8)
    known = SeenIds(store)
    for start in range(0, 200, 5):  # each batch brings five new spans and the five before again
        body = request(*((n, n) for n in range(max(start - 5, 0) + 1, start + 6)))
        load(store, [Request("traces", 1, body)], known, dead_letters=tmp_path)
    assert count(store) == 200


def test_a_transaction_that_fills_row_groups_leaves_nothing_to_a_checkpoint(
    store: Store, tmp_path: Path
) -> None:
    bodies = [request(*((n, n) for n in range(1, ROW_GROUP_ROWS + 1)))]
    load(store, [Request("traces", 1, body) for body in bodies], dead_letters=tmp_path)
    log = tmp_path / "t.duckdb.wal"
    assert log.stat().st_size < ROW_GROUP_ROWS * 16  # the ids alone would be more
    sizes = store.query("SELECT DISTINCT count FROM pragma_storage_info('spans')")
    assert max(sizes["count"].to_pylist()) == ROW_GROUP_ROWS


@contextmanager
def loading(path: Path) -> Iterator[tuple[Spool, Store]]:
    """Run a loader that does not derive; give its spool and store."""
    with closing(Spool(spool_folder(path))) as spool, open_store(path) as store:
        loader = Loader(store.cursor(), spool, LoaderSettings(derive=False))
        loader.start()
        try:
            yield spool, store
        finally:
            loader.stop()


def test_rows_that_fill_a_row_group_soon_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of a row group would be compressed and written twice."""
    monkeypatch.setattr(loader_module, "FILL_SECONDS", LIMIT_S)
    half = ROW_GROUP_ROWS // 2
    with loading(tmp_path / "t.duckdb") as (spool, store):
        for first in (1, half + 1):
            body = request(*((n, n) for n in range(first, first + half)))
            spool.append("traces", body, half).result(timeout=LIMIT_S)
            if first == 1:
                time.sleep(4 * loader_module.INTERVAL_SECONDS)  # long enough to be stored apart
                assert count(store) == 0
        eventually(lambda: count(store) == ROW_GROUP_ROWS)
        assert (tmp_path / "t.duckdb.wal").stat().st_size < ROW_GROUP_ROWS * 16


def test_rows_that_fill_no_row_group_are_stored_after_a_while(tmp_path: Path) -> None:
    part = ROW_GROUP_ROWS // 2
    with loading(tmp_path / "t.duckdb") as (spool, store):
        body = request(*((n, n) for n in range(1, part + 1)))
        spool.append("traces", body, part).result(timeout=LIMIT_S)
        eventually(lambda: count(store) == part)


def test_a_resource_is_read_back_as_the_map_that_was_sent(store: Store, tmp_path: Path) -> None:
    message = ExportTraceServiceRequest.FromString(request((1, 1)))
    sent = {"service.name": "s", 'quo"ted\\': '{"a": 1}', "nul\0": "\0", "": "é\n", "n": "1e5"}
    for key, value in sent.items():
        message.resource_spans[0].resource.attributes.add(key=key).value.string_value = value
    message.resource_spans[0].resource.attributes.add(key="unset")
    load(store, [Request("traces", 1, message.SerializeToString())], dead_letters=tmp_path)
    row = store.query("SELECT resource, service_name FROM spans").to_pylist()[0]
    assert dict(row["resource"]) == {**sent, "unset": None}
    assert row["service_name"] == "s"


def test_a_body_that_cannot_be_decoded_is_set_aside_and_its_neighbours_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.duckdb"
    synced: set[int] = set()
    monkeypatch.setattr("os.fsync", lambda file: synced.add(os.fstat(file).st_ino))
    spool = Spool(spool_folder(path))
    for body in (request((1, 1)), b"\xff not OTLP", request((2, 2))):
        spool.append("traces", body).result(LIMIT_S)
    with open_store(path) as store:
        loader = Loader(store.cursor(), spool, LoaderSettings(derive=False))
        loader.start()
        loader.stop()
        assert count(store) == len({1, 2})
        files = store.query("SELECT file FROM rejected")["file"].to_pylist()
        assert [Path(file).read_bytes() for file in files] == [b"\xff not OTLP"]
        # Before its segment is deleted.
        assert {Path(file).stat().st_ino for file in files} <= synced
        assert spool.backlog() == 0
    spool.close()


def test_queued_work_is_run_while_much_waits_to_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a backup. Under steady load the loader never comes to the end of what waits."""
    spool, spans = Spool(spool_folder(tmp_path / "t.duckdb")), 2000
    for first in range(1, 8 * spans, spans):
        message = ExportTraceServiceRequest()
        message.ParseFromString(request(*((first + number, 0) for number in range(spans))))
        for span in message.resource_spans[0].scope_spans[0].spans:
            span.name = "n" * (BATCH_BYTES // spans)
        spool.append("traces", message.SerializeToString()).result(timeout=LIMIT_S)
    with open_store(tmp_path / "t.duckdb") as store:
        loader = Loader(store.cursor(), spool, LoaderSettings(derive=False))
        forget, waiting = spool.forget, list[Future[int]]()

        def forget_and_queue(end: Position) -> None:
            forget(end)
            if not waiting:  # the first batch is stored: from now on it has to be run
                waiting.append(loader._queue.add(lambda _: spool.backlog()))

        monkeypatch.setattr(spool, "forget", forget_and_queue)
        loader.start()
        try:
            eventually(lambda: bool(waiting) and waiting[0].done())
            assert waiting[0].result(0) > 0
        finally:
            loader.stop()
        assert count(store) == 8 * spans
    spool.close()


def test_a_batch_that_does_not_fit_the_memory_limit_is_stored_with_more(tmp_path: Path) -> None:
    """DuckDB unpacks the resource of 2,048 rows together."""
    message = ExportTraceServiceRequest()
    message.ParseFromString(request(*((number, 0) for number in range(1, 2_049))))
    text = "x" * (LEAST_MEMORY_BYTES // 2_048)
    message.resource_spans[0].resource.attributes.add(key="args").value.string_value = text
    path, alarms = tmp_path / "t.duckdb", Alarms()
    with closing(Spool(spool_folder(path))) as spool, open_store(path) as store:
        store.limit(LEAST_MEMORY_BYTES)
        spool.append("traces", message.SerializeToString()).result(timeout=LIMIT_S)
        loader = Loader(store.cursor(), spool, LoaderSettings(derive=False), alarms)
        loader.start()
        try:
            eventually(lambda: bool(count(store) or alarms.raised()), LIMIT_S)
            assert not alarms.raised()
        finally:
            loader.stop()
        assert count(store) == len(message.resource_spans[0].scope_spans[0].spans)
        assert store.column("SELECT current_setting('memory_limit')") == ["244.1 MiB"]


def test_a_client_that_prevents_checkpoints_for_long_is_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB's log would grow with all that is stored, and nobody would know why."""
    monkeypatch.setattr(loader_module, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(checkpoints, "BLOCKED_SECONDS", 0.2)
    spool = Spool(spool_folder(tmp_path / "t.duckdb"))
    alarms = Alarms(refuse_after=0.0)
    with open_store(tmp_path / "t.duckdb") as store, store.cursor() as client:
        client.execute("BEGIN; CREATE TABLE mine (i INTEGER)")
        loader = Loader(store.cursor(), spool, LoaderSettings(derive=False), alarms)
        loader.start()
        try:
            spool.append("traces", request((1, 1))).result(timeout=LIMIT_S)
            eventually(lambda: alarms.is_raised("checkpointing"))
            assert alarms.refusal() is None
            client.execute("ROLLBACK")
            eventually(lambda: not alarms.is_raised("checkpointing"))
        finally:
            loader.stop()
    spool.close()


def test_damage_on_the_spool_is_rejected_by_name_and_its_neighbours_are_stored(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.duckdb"
    spool = Spool(spool_folder(path))
    for number in range(1, 89):
        spool.append("traces", request((number, number))).result(LIMIT_S)
    file = next(spool_folder(path).glob("*.spool"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with open_store(path) as store:
        loader = Loader(store.cursor(), spool, LoaderSettings(derive=False))
        loader.start()
        loader.stop()
        assert count(store) == 87
        rejected = store.query("SELECT signal, reason, file FROM rejected").to_pylist()
        assert [row["signal"] for row in rejected] == ["spool"]
        assert "damaged" in rejected[0]["reason"]
        assert Path(rejected[0]["file"]).stat().st_size == len(content) / 88
        assert spool.backlog() == 0
    spool.close()


def test_the_filter_knows_what_was_added_and_hardly_anything_else() -> None:
    chance = np.random.default_rng(7)
    added, others = chance.integers(0, 2**64, (2, 500_000), dtype=np.uint64)
    filtered = BloomFilter(len(added))
    filtered.add(added)
    assert filtered.may_hold(added).all()
    assert filtered.may_hold(others).mean() < 1e-4


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_store_file_that_loses_its_name_is_an_alarm_and_nothing_is_lost(
    replaced: bool,  # noqa: FBT001  pytest passes it by name
    tmp_path: Path,
) -> None:
    path, kept, alarms = tmp_path / "t.duckdb", tmp_path / "kept", Alarms()
    with open_store(path) as store, closing(Spool(spool_folder(path))) as spool:
        loader = Loader(store, spool, alarms=alarms)
        loader.start()
        try:
            path.rename(kept)
            if replaced:
                path.write_bytes(kept.read_bytes())
            spool.append("traces", request((1, 5))).result(timeout=LIMIT_S)
            eventually(lambda: "storing" in [one.name for one in alarms.raised()])
            assert "deleted or replaced" in alarms.raised()[0].reason
            assert spool.backlog() > 0
            kept.rename(path)
            eventually(lambda: not alarms.raised())
        finally:
            loader.stop()
        assert count(store) == 1
        assert spool.backlog() == 0


def last_checkpoint(path: Path) -> int:
    """Return the number of the last checkpoint in a file of DuckDB."""
    content = path.read_bytes()
    return max(int.from_bytes(content[at + 8 : at + 16], "little") for at in (4096, 8192))


def write_on(path: Path, number: int) -> None:
    """Write into a store until it has so many checkpoints."""
    while last_checkpoint(path) < number:
        with duckdb.connect(str(path)) as other:
            other.execute("CREATE OR REPLACE TABLE mine AS SELECT random() AS x")
    assert last_checkpoint(path) == number


def copy_over(path: Path, content: bytes) -> None:
    """Overwrite a file in place, as `cp` does."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)


@pytest.mark.parametrize(
    "content", ["another store", "an older copy", "a copy that was written on", "nothing"]
)
def test_a_store_file_that_is_overwritten_in_place_is_an_alarm_and_stays_as_it_is(
    content: str, tmp_path: Path
) -> None:
    path, other, alarms = tmp_path / "t.duckdb", tmp_path / "other.duckdb", Alarms()
    copy = tmp_path / "copy.duckdb"
    open_store(other).close()
    with open_store(path) as store, closing(Spool(spool_folder(path))) as spool:
        store.checkpoint()
        older = path.read_bytes()
        copy.write_bytes(older)
        loader = Loader(store, spool, alarms=alarms)
        loader.start()
        try:
            spool.append("traces", request((1, 5))).result(timeout=LIMIT_S)
            eventually(lambda: spool.backlog() == 0)
            loader.run_between_batches(lambda opened: opened.await_checkpoint())
            assert not alarms.raised()
            write_on(copy, last_checkpoint(path))
            contents = {
                "another store": other.read_bytes(),
                "an older copy": older,
                "a copy that was written on": copy.read_bytes(),
            }
            put = contents.get(content, b"")
            copy_over(path, put)
            spool.append("traces", request((2, 6))).result(timeout=LIMIT_S)
            eventually(lambda: bool(alarms.raised()))
            assert "was overwritten while lightning-ingest has it" in alarms.raised()[0].reason
            assert spool.backlog() > 0
        finally:
            loader.stop()
    assert path.read_bytes() == put  # no checkpoint was written between its blocks
