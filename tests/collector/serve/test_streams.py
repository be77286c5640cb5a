"""An ingester goes on when its standard streams are closed or full, and when a log is rotated."""

import json
import os
import pty
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import Ingester, background, eventually, written_by

COMMAND = (sys.executable, "-m", "otel_lightning.collector", "serve", "--refuse-after", "1s")
ADDRESSES = ("--http", "127.0.0.1:0", "--grpc", "none", "--store")


def stores(http: str, store: Path, name: str) -> None:
    assert send(http, trace_request(name).SerializeToString()).status == 200
    eventually(lambda: name in column(store, "SELECT name FROM spans"))


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_stream_does_not_become_the_store(closed: str, tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    shell = ("sh", "-c", f'exec "$@" {closed}', "sh")
    with background(*shell, *COMMAND, *ADDRESSES, store) as process:
        http = json.loads(written_by(process, tmp_path / "t.duckdb.server"))["http"]
        stores(http, store, "one")
        for stream in range(3):
            opened = Path(f"/proc/{process.pid}/fd/{stream}")
            assert not opened.exists() or not opened.resolve().is_relative_to(tmp_path)
        process.terminate()
        assert process.wait(60) == 0


def broken_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("made", [broken_pipe, lambda: os.open("/dev/full", os.O_WRONLY)])
def test_a_log_that_cannot_be_written_stops_nothing(
    made: Callable[[], int], form: str, tmp_path: Path
) -> None:
    store, stream = tmp_path / "t.duckdb", made()
    command = (*COMMAND, "--log-format", form, *ADDRESSES, store)
    with background(*command, stdout=stream, stderr=stream) as process:
        os.close(stream)
        http = json.loads(written_by(process, tmp_path / "t.duckdb.server"))["http"]
        stores(http, store, "one")
        store.with_name("t.duckdb.spool").rename(tmp_path / "moved")  # logs an alarm
        (tmp_path / "t.duckdb.spool").touch()
        eventually(lambda: metric(http, 'lightning_alarm{alarm="receiving"}') == 1)
        (tmp_path / "t.duckdb.spool").unlink()
        (tmp_path / "moved").rename(tmp_path / "t.duckdb.spool")
        eventually(lambda: metric(http, 'lightning_alarm{alarm="receiving"}') == 0)
        stores(http, store, "two")
        process.terminate()
        assert process.wait(60) == 0


def test_sighup_without_certificates_does_not_end_a_service(ingester: Ingester) -> None:
    ingester.process.send_signal(signal.SIGHUP)
    stores(ingester.http, ingester.store, "one")
    assert ingester.stop() == 0


def as_in_a_terminal() -> None:
    """Undo what `nohup` did, if the tests were started with it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_the_end_of_its_terminal_stops_it_in_order(tmp_path: Path) -> None:
    store, (ours, its) = tmp_path / "t.duckdb", pty.openpty()
    log = tmp_path / "log"
    with (
        log.open("w") as out,
        background(
            *COMMAND, *ADDRESSES, store, stdin=its, stdout=out, preexec_fn=as_in_a_terminal
        ) as process,
    ):
        written_by(process, tmp_path / "t.duckdb.server")
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
    os.close(ours)
    os.close(its)
    assert "everything that was acknowledged is stored" in log.read_text()
