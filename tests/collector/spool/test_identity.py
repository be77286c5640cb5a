"""Nothing that was acknowledged is lost when a store and a spool do not belong together."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli_here, eventually
from support.stores import unpacked

from otel_lightning.collector.load.position import spool_position, waiting
from otel_lightning.collector.load.resume import resume
from otel_lightning.collector.maintain.backup import back_up_by_path
from otel_lightning.collector.maintain.copy_store import copy_store
from otel_lightning.collector.maintain.erase import Selection, erase
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import open_store

SPANS = "SELECT count(*) FROM spans"


def sent(ingester: Ingester, times: int = 1) -> None:
    for _ in range(times):
        assert send(ingester.http, trace_request("chat").SerializeToString()).status == 200


def stored(ingester: Ingester, spans: int) -> None:
    eventually(lambda: column(ingester.store, SPANS) == [spans])


def test_a_store_that_is_restored_without_its_spool_stores_what_comes(
    starter: Callable[..., Ingester],
) -> None:
    first = starter()
    sent(first, 5)
    assert first.stop() == 0
    shutil.rmtree(spool_folder(first.store))
    second = starter()
    sent(second)
    stored(second, 6)
    eventually(lambda: metric(second.http, "lightning_loader_lag_seconds") == 0)


@pytest.mark.slow
def test_a_spool_folder_that_is_deleted_while_running_loses_nothing(ingester: Ingester) -> None:
    sent(ingester, 3)
    stored(ingester, 3)
    shutil.rmtree(spool_folder(ingester.store))
    sent(ingester, 2)
    stored(ingester, 5)
    assert ingester.stop() == 0
    assert cli_here("check", "--store", str(ingester.store)).returncode == 0


def test_what_waits_in_a_deleted_spool_is_put_back(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    try:
        spool.append("traces", b"first").result(LIMIT_S)
        shutil.rmtree(spool.folder)
        spool.append("traces", b"second").result(LIMIT_S)
        bodies = [record.body for record in spool.read(Position(1, 0), 1 << 20)]
        assert bodies == [b"first", b"second"]
        shutil.move(spool.folder, tmp_path / "moved")
        eventually(lambda: bool(spool.read(Position(1, 0), 1 << 20)))  # without a request
    finally:
        spool.close()
    again = Spool(tmp_path / "spool")
    assert again.id == spool.id
    again.close()


@pytest.mark.parametrize("position", [Position(1, 1_000_000), Position(7, 0)])
def test_a_position_that_is_not_in_the_spool_is_given_up(
    position: Position, tmp_path: Path
) -> None:
    path = unpacked("0.1.0", tmp_path)  # it does not say which spool it was fed from
    spool = Spool(spool_folder(path))
    with open_store(path) as store:
        spool.append("traces", b"body").result(LIMIT_S)
        store.execute(
            f"DELETE FROM spool_position; INSERT INTO spool_position VALUES {tuple(position)}"
        )
        assert resume(store, spool) == Position(1, 0) == spool_position(store)
        assert resume(store, spool) == Position(1, 0)
    spool.close()


def test_a_position_in_the_same_spool_stays(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    spool = Spool(spool_folder(path))
    with open_store(path) as store:
        assert resume(store, spool) == Position(1, 0)
        spool.append("traces", b"body").result(LIMIT_S)
        end = spool.end
        store.execute(f"UPDATE spool_position SET byte_offset = {end.offset}")
        assert resume(store, spool) == end
    spool.close()


def appended(folder: Path, count: int) -> None:
    """Receive requests in a process that ends before it has stored them."""
    spool = Spool(folder)
    for _ in range(count):
        spool.append("traces", trace_request("chat").SerializeToString()).result(LIMIT_S)
    spool.close()


def restored(folder: Path, position: Position) -> Path:
    """A store that was fed from another spool up to a position, beside a spool with one request."""
    path = folder / "t.duckdb"
    with open_store(path) as store:
        store.execute(f"INSERT INTO spool_position VALUES {tuple(position)}")
        store.execute("INSERT INTO spool_identity VALUES ('another')")
    appended(spool_folder(path), 1)
    return path


@pytest.mark.parametrize("position", [Position(1, 10), Position(7, 0)])
def test_what_waits_in_another_spool_than_that_of_the_store_is_no_stored_request(
    position: Position, tmp_path: Path
) -> None:
    path, copy, backup = restored(tmp_path, position), tmp_path / "copy", tmp_path / "backup"
    with open_store(path, read_only=True) as store:
        assert waiting(store, path) > 0
    assert cli_here("check", "--store", str(path)).returncode == 1
    back_up_by_path(path, backup)
    assert len(list(spool_folder(backup).glob("*.spool"))) == 1
    copy_store(path, copy)
    assert column(copy, SPANS) == [1]
    erase(path, Selection(traces=["0" * 32]))  # empties the spool
    assert column(path, SPANS) == [1]


def test_a_copy_of_a_spool_that_went_on_is_another_spool(
    starter: Callable[..., Ingester], tmp_path: Path
) -> None:
    first = starter()
    sent(first)
    assert first.stop() == 0
    spool, copy = spool_folder(first.store), tmp_path / "copy"
    shutil.copytree(spool, copy)
    second = starter()
    sent(second)
    assert second.stop() == 0
    appended(copy, 3)
    shutil.rmtree(spool)
    shutil.move(copy, spool)
    stored(starter(), 1 + 1 + 3)


def test_a_crash_before_the_new_id_is_stored_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    appended(spool_folder(path), 2)
    spool = Spool(spool_folder(path))
    with open_store(path) as store:
        resume(store, spool)
        store.execute(f"UPDATE spool_position SET byte_offset = {spool.end.offset}")
        spool.renew_id()
        assert resume(store, spool) == Position(1, 0)
    spool.close()
