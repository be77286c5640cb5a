"""Whatever dies in the process ends it, so that it is started again, or goes on and is counted."""

import json
import math
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import grpc
import grpc._server
import pytest
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import (
    LIMIT_S,
    Ingester,
    background,
    cli_here,
    eventually,
    finish,
    start,
    written_by,
)

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.last_run import Run
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.serve.gauges import gauges
from otel_lightning.collector.serve.servers import start_grpc
from otel_lightning.collector.serve.watches.supervision import (
    LAG_SECONDS,
    MANY,
    WITHIN_SECONDS,
    Repetition,
    Supervisor,
)
from otel_lightning.collector.spool.format import segment_path
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import open_store

BREAK_AND_SERVE = """
import sys
import grpc._server
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.refresh.refresher import Refresher
from otel_lightning.collector.refresh.workers.worker_watch import WorkerWatch
from otel_lightning.collector.serve.watches.descriptors import IdleConnections
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import StoreError
from otel_lightning.collector.store.clients.disconnected_clients import ClientWatch

def fail(self, *_arguments):
    raise StoreError("the file is broken")

def leave(self, *_arguments):
    raise SystemExit  # ends a thread in spite of all

def no_thread(self, *_arguments, **_more):
    raise RuntimeError("can't start new thread")

{broken} = {how}
from otel_lightning.collector.__main__ import main
main()
"""


TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ADDRESSES = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]


def broken_command(broken: str, how: str, store: Path) -> list[str]:
    script = BREAK_AND_SERVE.format(broken=broken, how=how)
    return [sys.executable, "-c", script, "serve", "--store", str(store), *ADDRESSES]


@pytest.mark.parametrize(
    ("broken", "how", "told"),
    [
        ("Loader.run", "lambda self: None", "the loader thread ended by itself"),
        ("Spool._write", "lambda self: None", "the spool thread ended by itself"),
        ("Loader.__init__", "fail", "the file is broken"),
        ("IdleConnections.start", "no_thread", "can't start new thread"),
        ("IdleConnections.look", "leave", "the idle-connections thread ended by itself"),
        ("ClientWatch.look_until_stopped", "leave", "the client-watch thread ended by itself"),
    ],
    ids=["loader", "spool", "store", "no thread", "idle", "clients"],
)
def test_a_thread_that_dies_or_does_not_start_ends_the_process(
    broken: str, how: str, told: str, tmp_path: Path
) -> None:
    ended = finish(*broken_command(broken, how, tmp_path / "t"))
    assert ended.returncode == 1
    assert told in ended.stderr
    assert not (tmp_path / "t.server").exists()


def test_a_process_whose_server_file_cannot_be_deleted_ends(tmp_path: Path) -> None:
    store, log = tmp_path / "t", tmp_path / "log"
    words = [sys.executable, "-m", "otel_lightning.collector", "serve", "--store", str(store)]
    with log.open("w") as stderr, background(*words, *ADDRESSES, stderr=stderr) as process:
        http = json.loads(written_by(process, tmp_path / "t.server"))["http"]
        (tmp_path / "t.server").unlink()
        (tmp_path / "t.server").mkdir()  # no file, so that it cannot be deleted as one
        assert send(http, trace_request("one").SerializeToString()).status == 200
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    assert "t.server' cannot be deleted" in log.read_text()
    (tmp_path / "t.server").rmdir()
    assert column(store, "SELECT name FROM spans") == ["one"]


def test_a_server_file_that_somebody_deletes_is_put_back(ingester: Ingester) -> None:
    file = ingester.store.with_name("traces.duckdb.server")
    before = file.read_text()
    file.unlink()
    eventually(file.exists)
    assert file.read_text() == before
    assert column(ingester.store, "SELECT 1") == [1]
    assert ingester.stop() == 0
    assert not file.exists()


def test_a_grpc_server_that_takes_no_more_requests_ends_the_process(tmp_path: Path) -> None:
    """Its thread starts others. If the system has no room for one, it dies, and nobody answers."""
    store, log, told = tmp_path / "t", tmp_path / "log", tmp_path / "told"
    with log.open("w") as stderr, told.open("w") as stdout:
        command = broken_command("grpc._server._handle_call", "no_thread", store)
        with background(*command, stderr=stderr, stdout=stdout) as process:
            written_by(process, tmp_path / "t.server")
            eventually(lambda: "gRPC at" in told.read_text())
            (address,) = re.findall(r"gRPC at (\S+)", told.read_text())
            with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError):
                channel.unary_unary(TRACES)(
                    trace_request("one").SerializeToString(), timeout=LIMIT_S
                )
            assert process.wait(LIMIT_S) == 1
    assert "the gRPC server ended by itself" in log.read_text()


def test_a_thread_of_grpc_that_cannot_be_watched_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    serves = grpc._server._serve

    def polls(state: object) -> None:  # as another version of grpcio may call it
        serves(state)

    monkeypatch.setattr(grpc._server, "_serve", polls)
    server = grpc.server(ThreadPoolExecutor(1))
    try:
        assert start_grpc(server) == []
    finally:
        assert server.stop(None).wait(LIMIT_S)
    assert "The thread of the gRPC server is not found" in caplog.text


def test_a_background_thread_that_fails_goes_on_is_counted_and_raises_an_alarm(
    tmp_path: Path,
) -> None:
    store, log = tmp_path / "t", tmp_path / "log"
    with log.open("w") as stderr:
        command = broken_command("IdleConnections.look", "fail", store)
        with background(*command, stderr=stderr) as process:
            http = json.loads(written_by(process, tmp_path / "t.server"))["http"]
            eventually(lambda: metric(http, 'lightning_alarm{alarm="restarting"}') == 1)
            assert metric(http, "lightning_thread_failures") >= MANY
            assert send(http, trace_request("one").SerializeToString()).status == 200
            assert send(http, path="/readyz", method="GET").status == 200
            result = cli_here("check", "--store", str(store))
            assert result.returncode == 1
            assert "alarm restarting" in result.stdout
            assert "background threads" in result.stdout
            process.terminate()
            assert process.wait(LIMIT_S) == 0
    assert "alarm" not in cli_here("check", "--store", str(store)).stdout
    assert log.read_text().count("StoreError: the file is broken") == 1
    assert log.read_text().count("Alarm 'restarting'") == 1


def test_a_spool_that_cannot_be_read_does_not_end_the_process(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "t.duckdb") as store,
        closing(Spool(tmp_path / "t.duckdb.spool")) as spool,
    ):
        loader = Loader(store.cursor(), spool)
        spool.append("traces", trace_request("one").SerializeToString()).result(LIMIT_S)
        segment = segment_path(spool.folder, spool.end.segment)
        segment.unlink()
        segment.mkdir()
        with pytest.raises(IsADirectoryError):
            spool.oldest_ns(loader.position)
        supervisor = Supervisor(loader, spool, (), Alarms(), Run(tmp_path / "t.duckdb"))
        supervisor._looked_at -= 2 * LAG_SECONDS
        supervisor.look()


def test_a_read_that_does_not_end_holds_up_nobody_else_and_is_told(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "t.duckdb") as store,
        closing(Spool(tmp_path / "t.duckdb.spool")) as spool,
    ):
        loader, alarms = Loader(store.cursor(), spool), Alarms()
        spool.append("traces", trace_request("one").SerializeToString()).result(LIMIT_S)
        segment = segment_path(spool.folder, spool.end.segment)
        spool.begin_segment()
        supervisor = Supervisor(loader, spool, (), alarms, Run(tmp_path / "t.duckdb"))
        assert gauges(spool, loader, supervisor)["loader_lag_seconds"] > 0
        segment.rename(tmp_path / "segment")
        # To open it waits for somebody who writes, as to read from a disk that hangs does.
        os.mkfifo(segment)
        for _ in range(3):
            assert math.isnan(gauges(spool, loader, supervisor)["loader_lag_seconds"])

        def is_told() -> bool:
            supervisor._looked_at -= 2 * LAG_SECONDS
            supervisor.look()
            return alarms.is_raised("storing")

        eventually(is_told)
        assert "has not ended a read" in alarms.raised()[0].reason
        with segment.open("wb"):  # now it ends
            (tmp_path / "segment").rename(segment)
        eventually(lambda: gauges(spool, loader, supervisor)["loader_lag_seconds"] > 0)


def test_what_happens_again_and_again_is_told_until_it_stops() -> None:
    now = 0.0
    seen = Repetition(clock=lambda: now)
    assert not seen.is_frequent(MANY - 1)
    assert seen.is_frequent(MANY)
    now += WITHIN_SECONDS
    assert seen.is_frequent(MANY)
    now += 1
    assert not seen.is_frequent(MANY)
    for total in range(MANY + 1, MANY + 10):  # now and then is no alarm
        now += WITHIN_SECONDS / 2 + 1
        assert not seen.is_frequent(total)
    assert seen.is_frequent(1000)


def test_workers_that_die_again_and_again_are_an_alarm_that_refuses_nothing(tmp_path: Path) -> None:
    alarms = Alarms(refuse_after=0)
    with (
        open_store(tmp_path / "t.duckdb") as store,
        closing(Spool(tmp_path / "t.duckdb.spool")) as spool,
    ):
        loader = Loader(store.cursor(), spool, alarms=alarms)
        supervisor = Supervisor(loader, spool, (), alarms, Run(tmp_path / "t.duckdb"))
        for restarts in range(MANY):
            loader._refresher.pool.restarts = restarts
            supervisor.look()
            assert not alarms.raised()
        loader._refresher.pool.restarts = MANY
        supervisor.look()
        (alarm,) = alarms.raised()
        assert (alarm.name, alarms.refusal()) == ("restarting", None)
        assert "worker processes" in alarm.reason


def test_a_link_that_leads_to_another_file_is_an_alarm_until_it_leads_back(tmp_path: Path) -> None:
    file, other, link = tmp_path / "t.duckdb", tmp_path / "other.duckdb", tmp_path / "link"
    link.symlink_to(file)
    ingester = start(file, "--store", str(link))
    alarm = partial(metric, ingester.http, 'lightning_alarm{alarm="linking"}')
    try:
        link.unlink()
        link.symlink_to(other)
        eventually(lambda: alarm() == 1)
        # Storing goes on.
        send(ingester.http, trace_request("a").SerializeToString())
        eventually(lambda: column(file, "SELECT name FROM spans") == ["a"])
        link.unlink()
        link.symlink_to(file)
        eventually(lambda: alarm() == 0)
    finally:
        ingester.kill()
    assert not other.exists()
