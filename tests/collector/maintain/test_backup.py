"""A backup is whole, also while the ingester runs, and has all that was acknowledged."""

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.otlp_client import column, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli, cli_here, eventually, finish, join
from support.stores import DATA, counts

from otel_lightning.collector.load.from_files import derive_all, load_file
from otel_lightning.collector.maintain.backup import back_up_by_path
from otel_lightning.collector.spool.folder import SET_ASIDE, dead_letters, spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import StoreError, open_store

SPANS = "SELECT count(*) FROM spans"


def one_span() -> bytes:
    return trace_request("chat").SerializeToString()


def test_a_store_that_nobody_serves_is_backed_up(tmp_path: Path) -> None:
    path, target = tmp_path / "t.duckdb", tmp_path / "backup.duckdb"
    with open_store(path) as store:
        load_file(store, DATA / "agentops" / "tool.otlp.pb")
        derive_all(store, path)
        tables = ("spans", "llm_calls", "stale")
        before = counts(store, tables)
    (tmp_path / "t.duckdb.judge").write_bytes(b"")  # an empty SQLite file
    dead_letters(path).mkdir(parents=True)  # as `load` does, without a spool
    (dead_letters(path) / "1.traces.pb").write_bytes(b"no request")
    result = cli("backup", str(target), "--store", str(path))
    assert (result.returncode, result.stderr) == (0, "")
    assert (dead_letters(target) / "1.traces.pb").read_bytes() == b"no request"
    with open_store(target) as store:
        assert counts(store, tables) == before
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_backup_ends_when_the_disk_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "t.duckdb", tmp_path / "to" / "backup.duckdb"
    target.parent.mkdir()
    open_store(path).close()
    spool = Spool(spool_folder(path))
    spool.append("traces", one_span()).result(LIMIT_S)
    spool.close()
    aside = spool_folder(path) / SET_ASIDE
    aside.mkdir()
    (aside / "1.traces.pb").write_bytes(b"no request")
    Path(f"{path}.judge").write_bytes(b"")  # an empty SQLite file
    synced: dict[int, int] = {}  # by inode: size when it was synced last
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced[os.fstat(file).st_ino] = os.fstat(file).st_size

    monkeypatch.setattr("os.fsync", noted)
    back_up_by_path(path, target)
    made = [one.stat() for one in (target.parent, *target.parent.rglob("*"))]
    assert len(made) == len(["to", "file", "judge", "spool", "id", "segment", "dead", "body"])
    assert {one.st_ino: one.st_size for one in made} == {
        one.st_ino: synced.get(one.st_ino) for one in made
    }


@pytest.mark.slow
def test_a_backup_while_spans_come_has_all_that_was_acknowledged_before(
    starter: Callable[..., Ingester], tmp_path: Path
) -> None:
    running, target = starter(), tmp_path / "backup.duckdb"
    acknowledged = 0
    stop = threading.Event()

    def keep_sending() -> None:
        nonlocal acknowledged
        while not stop.is_set():
            assert send(running.http, one_span()).status == 200
            acknowledged += 1

    sender = threading.Thread(target=keep_sending, daemon=True)
    sender.start()
    try:
        eventually(lambda: acknowledged > 20)
        before = acknowledged
        result = cli("backup", str(target), "--store", str(running.store))
        assert (result.returncode, result.stderr) == (0, "")
    finally:
        stop.set()
        join(sender)
    running.kill()
    for suffix in ("", ".spool"):
        restored = running.store.with_name(running.store.name + suffix)
        shutil.rmtree(restored) if restored.is_dir() else restored.unlink()
        shutil.move(f"{target}{suffix}", restored)
    running.store.with_name(running.store.name + ".wal").unlink(missing_ok=True)
    again = starter()
    eventually(lambda: column(again.store, SPANS)[0] >= before)
    assert send(again.http, one_span()).status == 200
    eventually(lambda: column(again.store, "SELECT count(*) FROM stale") == [0])
    assert cli_here("check", "--deep", "--store", str(again.store)).returncode == 0


def test_no_other_process_can_open_the_file_after_a_backup(
    ingester: Ingester, tmp_path: Path
) -> None:
    result = cli("backup", str(tmp_path / "backup.duckdb"), "--store", str(ingester.store))
    assert (result.returncode, result.stderr) == (0, "")
    opening = "import sys, duckdb; duckdb.connect(sys.argv[1])"
    opened = finish(sys.executable, "-c", opening, ingester.store)
    assert opened.returncode == 1
    assert "Could not set lock" in opened.stderr


def test_a_backup_overwrites_nothing_and_a_failed_one_leaves_nothing(
    ingester: Ingester, tmp_path: Path
) -> None:
    target = tmp_path / "backup.duckdb"
    spool_folder(target).mkdir()
    with pytest.raises(StoreError, match="exists already"):
        back_up_by_path(ingester.store, target)
    with pytest.raises(StoreError, match="There is no folder"):
        back_up_by_path(ingester.store, tmp_path / "no" / "where.duckdb")
    assert not target.exists()


def test_the_token_that_only_reads_cannot_back_up(ingester: Ingester, tmp_path: Path) -> None:
    target = tmp_path / "stolen.duckdb"
    with (
        open_store(ingester.store, read_only=True) as store,
        pytest.raises(StoreError, match="This token reads only"),
    ):
        store.query(f"SELECT lightning_backup('{target}')")
    assert not target.exists()
