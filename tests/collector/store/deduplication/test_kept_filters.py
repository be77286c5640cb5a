"""The filters of stored ids outlive their process if the store's file is as it was left."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pytest
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, background, written_by

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.maintain.erase import Selection
from otel_lightning.collector.maintain.erase_served import erase_served
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.deduplication import kept_filters
from otel_lightning.collector.store.deduplication.kept_filters import (
    NOTHING,
    Kept,
    filters_file,
    keep,
    take,
)
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

SENT = [Request("traces", 1, trace_request(*"abc").SerializeToString())]

TRACES = b"some bytes"
"""Stands for the times of traces."""


@pytest.fixture(autouse=True)
def _few_ids_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_filters, "LEAST_IDS", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three spans, whose filters were kept when it was closed."""
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        known = SeenIds(store)
        assert load(store, SENT, known, dead_letters=tmp_path) == len("abc")
    keep(path, Kept(known.filters, TRACES))
    return path


def test_kept_filters_know_what_is_stored_without_reading_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert filters_file(path).stat().st_mode & 0o777 == 0o600
    filters, traces = take(path)
    assert traces == TRACES
    assert not filters_file(path).exists()
    other = [Request("traces", 2, trace_request(*"xyz").SerializeToString())]
    with open_store(path) as store:
        known = SeenIds(store)
        known.restore(filters)

        def fail(*_arguments: object) -> None:
            raise AssertionError("the ids of the whole table were read")

        monkeypatch.setattr(SeenIds, "_filled", fail)
        monkeypatch.setattr(SeenIds, "_filled_traces", fail)
        assert load(store, SENT, known, dead_letters=path.parent) == 0
        assert load(store, other, known, dead_letters=path.parent) == len("xyz")
        assert load(store, other, known, dead_letters=path.parent) == 0
    keep(path, Kept(known.filters))
    assert {name: [one.rows for one in some] for name, some in take(path).filters.items()} == {
        name: [one.rows for one in some] for name, some in known.filters.items()
    }


def test_filters_of_a_store_that_was_written_since_are_not_used(path: Path) -> None:
    with open_store(path) as store:
        store.execute("CREATE TABLE mine (n INTEGER)")
    assert take(path) == NOTHING
    assert not filters_file(path).exists()


def test_filters_of_another_file_are_not_used(path: Path, tmp_path: Path) -> None:
    path.rename(tmp_path / "away")
    path.write_bytes((tmp_path / "away").read_bytes())  # as when a backup is restored
    assert take(path) == NOTHING


def test_filters_of_another_duckdb_are_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb, "__version__", "1.99.0")  # its `hash` may differ
    assert take(path) == NOTHING


def test_filters_beside_a_log_of_duckdb_are_not_used(path: Path) -> None:
    path.with_name(path.name + ".wal").write_bytes(b"a process died")
    assert take(path) == NOTHING


@pytest.mark.parametrize("at", [0, 30, 1_000, -1])
def test_damaged_filters_are_not_used(at: int, path: Path) -> None:
    content = bytearray(filters_file(path).read_bytes())
    content[at] ^= 1
    filters_file(path).write_bytes(content)
    assert take(path) == NOTHING


def test_a_part_of_the_filters_is_not_used(path: Path) -> None:
    file = filters_file(path)
    file.write_bytes(file.read_bytes()[:-1])
    assert take(path) == NOTHING


def test_filters_with_ids_that_were_erased_are_not_kept(path: Path) -> None:
    kept = take(path)
    with (
        open_store(path, to_serve=True) as store,
        closing(Spool(spool_folder(path))) as spool,
    ):
        store.serve("127.0.0.1:1")
        loader = Loader(store.cursor(), spool, LoaderSettings(), Alarms(refuse_after=60.0))
        loader.seen_ids.restore(kept.filters)
        loader.start()
        try:
            everything = Selection(where="span_id IS NOT NULL")
            assert erase_served(loader, store.served_file(), everything).traces
        finally:
            loader.stop()
    keep(path, loader.kept())
    assert take(path) == NOTHING


def test_filters_of_few_ids_are_not_kept(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_filters, "LEAST_IDS", 1_000)
    kept = take(path)
    keep(tmp_path / "t.duckdb", kept)
    assert kept != NOTHING
    assert not filters_file(path).exists()


FEW_ARE_KEPT = """
from otel_lightning.collector.store.deduplication import kept_filters
kept_filters.LEAST_IDS = 1
from otel_lightning.collector.__main__ import main
main()
"""


READS_IDS = "stored rows are read"
"""What a process logs that was given no filters."""


@contextmanager
def ingester(store: Path) -> Iterator[subprocess.Popen[str]]:
    """An ingester that keeps filters of few ids, for the block."""
    words = [sys.executable, "-c", FEW_ARE_KEPT, "serve", "--store", str(store), "--grpc", "none"]
    words += ["--http", "127.0.0.1:0"]
    with background(*words, stderr=subprocess.PIPE, text=True) as process:
        yield process


def http_of(process: subprocess.Popen[str], store: Path) -> str:
    """Wait until an ingester has started; return the address at which it receives."""
    address: str = json.loads(written_by(process, store.with_name(store.name + ".server")))["http"]
    return address


def stopped(process: subprocess.Popen[str]) -> str:
    """Stop an ingester, and return what it logged."""
    process.terminate()
    logged = process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 0
    return logged


def test_a_process_that_is_stopped_keeps_its_filters_for_the_next(tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    for are_kept in (True, True, False):
        if not are_kept:
            filters_file(store).unlink()
        with ingester(store) as process:
            assert send(http_of(process, store), SENT[0].body).status == 200
            assert (READS_IDS in stopped(process)) is not are_kept
        with open_store(store) as opened:
            assert opened.count("spans") == len("abc")


def test_filters_are_not_used_if_the_store_is_written_while_a_start_waits_for_it(
    path: Path,
) -> None:
    other = trace_request(*"xyz").SerializeToString()
    with open_store(path) as store, ingester(path) as process:
        assert process.stderr
        assert any("another process holds" in line for line in process.stderr)
        assert load(store, [Request("traces", 2, other)], SeenIds(store), dead_letters=path) == 3
        store.close()
        assert send(http_of(process, path), other).status == 200
        stopped(process)
    with open_store(path) as store:
        assert store.count("spans") == len("abcxyz")
