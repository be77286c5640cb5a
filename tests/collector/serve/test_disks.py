"""Disks of a running `lightning-ingest` that stop, come back, are full, or are moved away."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.disks import Disk, mounted
from support.examples import first_quick
from support.logged import Logged, logged, stored_names
from support.otlp_client import metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, background, cli, eventually, finish, running

NOBODY = 65_534
STORING, RECEIVING = 'lightning_alarm{alarm="storing"}', 'lightning_alarm{alarm="receiving"}'
LAGGING = 'lightning_alarm{alarm="lagging"}'


def check(store: Path) -> str:
    """What `check` says; it has to find a fault."""
    result = cli("check", "--store", str(store))
    assert result.returncode == 1, result.stdout
    return result.stdout


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Callable[..., Disk]]:
    """Mount disks for a test."""
    with ExitStack() as stack:

        def mount(name: str, **options: Any) -> Disk:
            return stack.enter_context(mounted(tmp_path / name, **options))

        yield mount


def with_spool_elsewhere(disk: Disk, spool: Path) -> Path:
    """Name a store on a disk whose spool is not on that disk."""
    store = disk.folder / "t.duckdb"
    spool.mkdir()
    store.with_name("t.duckdb.spool").symlink_to(spool)
    return store


@pytest.mark.parametrize("way", first_quick(["make_read_only", "pull"]))
def test_a_disk_that_stops_is_told_and_nothing_is_lost_when_it_is_back(
    way: str, disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk, log = disks("disk"), tmp_path / "log"
    store = disk.folder / "t.duckdb"
    with logged(store, log) as ingester:
        ingester.stores("before")
        getattr(disk, way)()
        with ingester.unless_duckdb_crashes():
            assert ingester.sends("refused") == 503
            reason = {"make_read_only": "Read-only file system", "pull": "Input/output error"}[way]
            report = check(store)
            assert f"the store cannot use '{disk.folder}' ({reason})" in report
            assert f"the spool cannot use '{disk.folder}/t.duckdb.spool' ({reason})" in report
            # From a disk that is pulled, nobody can read where the process answers.
            assert ("alarm receiving" in report) == (way == "make_read_only")
            assert metric(ingester.http, RECEIVING) == 1
            assert ingester.sends("refused") == 503
            assert log.read_text().count("Alarm 'receiving': ") == 1
        disk.unmount()
        disk.mount()
        # DuckDB has what it cannot write open, so only another process can go on.
        assert ingester.ends_by_itself()


def test_a_disk_that_hangs_is_told_and_receiving_resumes_when_it_answers(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk, log = disks("disk"), tmp_path / "log"
    store = disk.folder / "t.duckdb"
    with logged(store, log) as ingester:
        ingester.stores("before")
        with ThreadPoolExecutor(1) as threads, disk.frozen():
            waiting = threads.submit(ingester.sends, "waits")
            eventually(lambda: metric(ingester.http, RECEIVING) == 1)
            assert ingester.sends("refused") == 503
            assert send(ingester.http, path="/healthz", method="GET").status == 200
            ready = send(ingester.http, path="/readyz", method="GET")
            assert (ready.status, b"has not ended a write" in ready.body) == (503, True)
            report = check(store)
            assert "alarm receiving" in report
            assert "does not answer" in report
            assert waiting.result(LIMIT_S) == 503
        eventually(lambda: has_no_alarm(ingester))
        eventually(lambda: ingester.sends("after") == 200)  # what waited has to be stored first
        eventually(lambda: {"before", "after"} <= set(stored_names(store)))
        assert ingester.process.poll() is None
    assert log.read_text().count("Alarm 'receiving': ") == 1


def has_no_alarm(ingester: Logged) -> bool:
    """Whether requests are received and stored."""
    return metric(ingester.http, RECEIVING) == metric(ingester.http, STORING) == 0


def test_a_disk_of_the_store_that_hangs_stops_no_receiving(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk, log = disks("disk"), tmp_path / "log"
    store = with_spool_elsewhere(disk, tmp_path / "spool")
    with logged(store, log, "--max-lag", "5s") as ingester:
        ingester.stores("before")
        eventually(lambda: metric(ingester.http, "lightning_loader_lag_seconds") == 0)
        with disk.frozen():
            assert ingester.sends("waits") == 200
            eventually(lambda: metric(ingester.http, LAGGING) == 1)
            assert ingester.sends("refused") == 503  # after --max-lag
            assert "does not answer" in check(store)
        eventually(lambda: metric(ingester.http, LAGGING) == 0)
        eventually(lambda: ingester.sends("after") == 200)
        eventually(lambda: {"before", "waits", "after"} <= set(stored_names(store)))
        assert ingester.process.poll() is None
    assert log.read_text().count("Alarm 'lagging': ") == 1


@pytest.mark.slow
def test_a_disk_of_the_store_alone_that_stops_leaves_what_is_acknowledged_on_the_spool(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk, log = disks("disk"), tmp_path / "log"
    store = with_spool_elsewhere(disk, tmp_path / "spool")
    with logged(store, log) as ingester:
        ingester.stores("before")
        disk.make_read_only()
        with ingester.unless_duckdb_crashes():
            assert ingester.sends("waits") == 200
            eventually(lambda: metric(ingester.http, STORING) == 1)
            report = check(store)
            assert f"the store cannot use '{disk.folder}' (Read-only file system)" in report
            assert "alarm storing" in report
            assert "alarm receiving" not in report
            eventually(lambda: ingester.sends("refused") == 503)  # since it lasts
            assert log.read_text().count("Alarm 'storing'") == 1
        disk.unmount()
        disk.mount()
        assert ingester.ends_by_itself()


def test_a_commit_that_duckdb_cannot_take_back_costs_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    """A disk that stops between the writing of a commit and its sync, as DuckDB sees it."""
    store, log = tmp_path / "t.duckdb", tmp_path / "log"
    with logged(store, log) as ingester:
        ingester.stores("before")
        with failing_syncs(ingester.process.pid, store.with_name("t.duckdb.wal")):
            with ingester.unless_duckdb_crashes():  # perhaps it derives `before` only now
                assert ingester.sends("acknowledged") == 200
            assert ingester.ends_by_itself()
        assert ingester.has_crashed()
        assert "Fatal Python error: Aborted" in log.read_text()  # and what each thread did


@contextmanager
def failing_syncs(pid: int, file: Path) -> Iterator[None]:
    """Let each sync and each cut of a file by a process fail; skip where that is not allowed."""
    calls = ("-e", "inject=fsync,fdatasync:error=EIO", "-e", "inject=ftruncate:error=EROFS")
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    with background("strace", "-f", "-p", str(pid), "-P", file, *calls, stderr=DEVNULL) as tracer:

        def is_traced() -> bool:
            if tracer.poll() is not None:
                pytest.skip("no process can be traced here")
            states = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/status")]
            return not any("TracerPid:\t0\n" in state for state in states)

        eventually(is_traced)
        yield


def test_a_start_on_a_disk_that_takes_no_writes_says_which_and_why(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk = disks("disk")
    store = with_spool_elsewhere(disk, tmp_path / "spool")
    with running(store):
        pass
    disk.make_read_only()
    result = cli("serve", "--http", "127.0.0.1:0", "--grpc", "none", "--store", str(store))
    assert result.returncode == 1
    assert str(store) in result.stderr
    assert "Read-only file system" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_full_disk_of_the_store_alone_passes_without_loss(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk = disks("disk")
    store = with_spool_elsewhere(disk, tmp_path / "spool")
    with logged(store, tmp_path / "log") as ingester:
        ingester.stores("before")
        full = disk.fill()
        with ingester.unless_duckdb_crashes():
            # A checkpoint is due after some seconds, too: on a full disk it makes DuckDB give up.
            eventually(lambda: metric(ingester.http, STORING) == 1)
            report = check(store)
            assert f"the store cannot use '{disk.folder}' (No space left on device)" in report
        full.unlink()
        assert ingester.ends_by_itself()


@pytest.fixture
def folder_of_a_user() -> Iterator[Path]:
    """A folder of a user who is not root, whom permissions concern."""
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("no process of another user can be started here")
    with TemporaryDirectory() as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)
        Path(name).chmod(0o700)


def test_a_folder_that_its_user_may_no_longer_write_is_told_and_waited_for(
    folder_of_a_user: Path, tmp_path: Path
) -> None:
    store = folder_of_a_user / "t.duckdb"
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    with logged(store, tmp_path / "log", before=user) as ingester:
        ingester.stores("before")
        folder_of_a_user.chmod(0o500)
        assert ingester.sends("waits") == 200
        # A checkpoint, for which DuckDB makes and deletes files, is due after some seconds.
        eventually(lambda: metric(ingester.http, STORING) == 1)
        ask = (sys.executable, "-m", "otel_lightning.collector", "check", "--store", store)
        process = finish(*user, *ask)
        assert process.returncode == 1
        assert f"the store cannot use '{folder_of_a_user}' (Permission denied)" in process.stdout
        eventually(lambda: ingester.sends("refused") == 503)
        assert ingester.process.poll() is None  # it would end at once again
        folder_of_a_user.chmod(0o700)
        assert ingester.process.wait(LIMIT_S) == 1


@pytest.mark.slow
def test_a_quota_that_is_used_up_is_told_and_passes_without_loss(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk = disks("disk", megabytes=256, quota="40M")
    store = disk.folder / "t.duckdb"
    with logged(store, tmp_path / "log") as ingester:
        with ingester.unless_duckdb_crashes():
            sent = 0
            while ingester.sends_request(large_request()) == 200:
                assert sent < 20, "the quota is not enforced"
                sent += 1
            refused = send(ingester.http, large_request().SerializeToString())
            assert "Disk quota exceeded" in refused.reason()
            ready = send(ingester.http, path="/readyz", method="GET")
            assert (ready.status, b"(Disk quota exceeded" in ready.body) == (503, True)
            assert "(Disk quota exceeded). Make room on its disk." in check(store)
        disk.limit("none")
        with ingester.unless_duckdb_crashes():
            ended = ingester.process.poll
            eventually(lambda: ended() == 1 or ingester.sends("after") == 200)
        ingester.process.terminate()
        # 1 if a checkpoint had failed: a restart is needed
        assert ingester.process.wait(LIMIT_S) in (0, 1) or ingester.has_crashed()


def large_request() -> ExportTraceServiceRequest:
    """8 MB that are not compressed away, in texts short enough for checkpoints to merge them."""
    request = trace_request(*["chat"] * 400)
    for span in request.resource_spans[0].scope_spans[0].spans:
        text = span.attributes.add(key="gen_ai.input.messages").value
        text.string_value = os.urandom(10_000).hex()
    return request


@pytest.mark.slow
def test_a_full_disk_for_what_is_spilled_is_told_and_waited_for(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk = disks("t.duckdb.tmp")
    store, log = tmp_path / "t.duckdb", tmp_path / "log"
    with logged(store, log, "--memory", "256MB") as ingester:
        ingester.stores("before")
        full = disk.fill()
        sent = 0
        while metric(ingester.http, STORING) == 0:  # until memory is full, and DuckDB has to spill
            assert sent < 200, "DuckDB did not spill"
            sent += ingester.sends_request(large_request()) == 200
        report = check(store)
        assert f"what DuckDB spills cannot use '{disk.folder}' (No space left on device)" in report
        assert "has to be started again" in report
        eventually(lambda: ingester.sends("refused") == 503)
        assert ingester.process.poll() is None  # it would end at once again
        full.unlink()
        assert ingester.process.wait(LIMIT_S) == 1
        assert "Traceback" not in log.read_text()


def test_a_disk_without_inodes_is_told_as_that(disks: Callable[..., Disk]) -> None:
    disk = disks("disk", inodes=32)
    store = disk.folder / "t.duckdb"
    with running(store):
        pass
    with suppress(OSError):
        for number in range(100):
            (disk.folder / f"{number}").touch()
    assert "no inode for another file: delete files there" in check(store)


def test_check_finds_a_disk_that_takes_no_writes_while_nothing_runs(
    disks: Callable[..., Disk],
) -> None:
    disk = disks("disk")
    store = disk.folder / "t.duckdb"
    with running(store):
        pass
    assert cli("check", "--store", str(store)).returncode == 0
    disk.make_read_only()
    assert f"the store cannot use '{disk.folder}' (Read-only file system)" in check(store)


def test_a_folder_that_was_moved_is_told_and_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    store = data / "t.duckdb"
    with logged(store, log) as ingester:
        ingester.stores("before")
        data.rename(tmp_path / "moved")
        eventually(lambda: metric(ingester.http, RECEIVING) == metric(ingester.http, STORING) == 1)
        assert ingester.sends("refused") == 503
        assert not data.exists()
        (tmp_path / "moved").rename(data)
        eventually(lambda: has_no_alarm(ingester))
        ingester.stores("after")
        assert ingester.process.poll() is None
    assert log.read_text().count("Alarm 'receiving': ") == 1
