"""An ingester goes on when its standard streams are closed, full or not read."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import sys
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.examples import first_quick
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, background, eventually, written_by

from otel_lightning.collector.serve.logs import KEPT_BYTES
from otel_lightning.collector.store import StoreError, open_store

COMMAND = (sys.executable, "-m", "otel_lightning.collector", "serve", "--refuse-after", "1s")
ADDRESSES = ("--http", "127.0.0.1:0", "--grpc", "none", "--store")


def stores(http: str, store: Path, name: str) -> None:
    assert send(http, trace_request(name).SerializeToString()).status == 200
    eventually(lambda: name in column(store, "SELECT name FROM spans"))


@pytest.mark.parametrize("closed", first_quick(["0<&- 1>&- 2>&-", "0<&-", "1>&-", "2>&-"]))
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
        assert process.wait(LIMIT_S) == 0


def broken_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("form", first_quick(["text", "json"]))
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
        assert process.wait(LIMIT_S) == 0


def full_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    return read, write


def full_socket() -> tuple[int, int]:
    ours, its = socket.socketpair()
    return ours.detach(), its.detach()


def full_terminal() -> tuple[int, int]:
    ours, its = pty.openpty()
    tty.setraw(its)
    return ours, its


def fill(stream: int) -> None:
    """Write until it takes no more; then let writes to it wait again, if they did before."""
    waits = os.get_blocking(stream)
    os.set_blocking(stream, False)
    with suppress(BlockingIOError):
        while os.write(stream, b"." * 64):
            pass
    with suppress(BlockingIOError):
        while os.write(stream, b"."):
            pass
    os.set_blocking(stream, waits)


def read_now(stream: int) -> str:
    """Read what is there."""
    os.set_blocking(stream, False)
    parts: list[bytes] = []
    with suppress(BlockingIOError):
        while part := os.read(stream, 65_536):
            parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.parametrize("form", first_quick(["text", "json"]))
@pytest.mark.parametrize("made", [full_pipe, full_socket, full_terminal])
def test_a_log_that_nobody_reads_stops_nothing_and_its_lines_come_when_it_is_read(
    made: Callable[[], tuple[int, int]], form: str, tmp_path: Path
) -> None:
    store, (ours, its) = tmp_path / "t.duckdb", made()
    fill(its)
    command = (*COMMAND, "--log-format", form, *ADDRESSES, store)
    with background(*command, stdout=its, stderr=its) as process:
        http = json.loads(written_by(process, tmp_path / "t.duckdb.server"))["http"]
        stores(http, store, "one")
        assert send(http, path="/v1/trace").status == 404  # is logged
        stores(http, store, "two")
        said: list[str] = []
        eventually(lambda: said.append(read_now(ours)) or "there is no path" in "".join(said))  # type: ignore[func-returns-value]
        assert metric(http, "lightning_dropped_log_lines") == 0
        fill(its)
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    os.close(ours)
    os.close(its)


def test_lines_that_nobody_reads_are_dropped_and_counted(tmp_path: Path) -> None:
    store, (ours, its) = tmp_path / "t.duckdb", full_pipe()
    fill(its)
    with background(*COMMAND, *ADDRESSES, store, stderr=its) as process:
        http = json.loads(written_by(process, tmp_path / "t.duckdb.server"))["http"]
        with open_store(store, read_only=True) as reader:
            for _ in range(KEPT_BYTES // 50):  # each of them logs a line that is longer
                with suppress(StoreError):
                    reader.execute("INSERT INTO spans BY NAME SELECT 'x' AS trace_id")
                if metric(http, "lightning_dropped_log_lines") >= 3:
                    break
        stores(http, store, "one")
        dropped = metric(http, "lightning_dropped_log_lines")
        assert dropped >= 3
        said: list[str] = []
        eventually(lambda: said.append(read_now(ours)) or "were dropped here" in "".join(said))  # type: ignore[func-returns-value]
        lines = "".join(said).lstrip(".").splitlines()
        (number,) = re.findall(r"(\d+) lines of this log were dropped here", lines[-1])
        assert int(number) == dropped
        assert all(re.match(r"\d{4}-\d\d-\d\dT", line) for line in lines)
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    os.close(ours)
    os.close(its)


def test_lines_for_a_reader_that_has_ended_are_counted_at_once(tmp_path: Path) -> None:
    store, (ours, its) = tmp_path / "t.duckdb", os.pipe()
    with background(*COMMAND, *ADDRESSES, store, stderr=its) as process:
        http = json.loads(written_by(process, tmp_path / "t.duckdb.server"))["http"]
        os.close(its)
        os.close(ours)
        assert send(http, path="/v1/trace").status == 404  # is logged
        eventually(lambda: metric(http, "lightning_dropped_log_lines") == 1)
        stores(http, store, "one")
        process.terminate()
        assert process.wait(LIMIT_S) == 0


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
        assert process.wait(LIMIT_S) == 0
    os.close(ours)
    os.close(its)
    assert "everything that was acknowledged is stored" in log.read_text()
