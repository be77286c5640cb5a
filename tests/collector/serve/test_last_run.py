"""How the last process ended is told by the next one, unless somebody had asked it to stop."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from support.deliveries import DATA
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, background, cli_here, eventually, written_by

from otel_lightning.collector.derive.tables import PER_TRACE
from otel_lightning.collector.files.process_file import run_file
from otel_lightning.collector.last_run import (
    KILLED,
    MACHINE,
    End,
    Run,
    is_running,
    unasked_end,
)
from otel_lightning.collector.serve.watches.supervision import MANY, WITHIN_SECONDS
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.tables import ROLLOUT_ROWS

CALLS = DATA / "agent_langgraph" / "tasks.otlp.pb"
COMMAND = (sys.executable, "-m", "otel_lightning.collector", "serve", "--grpc", "none")


@contextmanager
def logged(store: Path, log: Path) -> Iterator[tuple[Popen[bytes], str]]:
    """Run an ingester whose log is in a file; yields its process and its HTTP address."""
    server = store.with_name(store.name + ".server")
    server.unlink(missing_ok=True)  # left by a killed one
    with (
        log.open("w") as stderr,
        background(*COMMAND, "--http", "127.0.0.1:0", "--store", store, stderr=stderr) as process,
    ):
        yield process, json.loads(written_by(process, server))["http"]


def sends(http: str, *names: str) -> None:
    for name in names:
        assert send(http, trace_request(name).SerializeToString()).status == 200


def test_what_a_killed_process_has_not_derived_is_derived_though_its_mark_is_gone(
    tmp_path: Path,
) -> None:
    store, log = tmp_path / "t.duckdb", tmp_path / "log"
    rows = "SELECT span_id FROM llm_calls ORDER BY ALL"
    with logged(store, log) as (process, http):
        assert send(http, CALLS.read_bytes()).status == 200
        eventually(lambda: column(store, rows) and column(store, "SELECT id FROM stale") == [])
        expected = column(store, rows)
        process.kill()
        process.wait(LIMIT_S)
    with open_store(store) as opened:  # as if it had been killed before
        opened.execute("; ".join(f"DELETE FROM {table}" for table in (*PER_TRACE, ROLLOUT_ROWS)))
    with logged(store, log):
        eventually(lambda: column(store, rows) == expected)


def test_a_process_that_was_killed_is_reported_with_what_is_read_again(tmp_path: Path) -> None:
    store, log = tmp_path / "t.duckdb", tmp_path / "log"
    with logged(store, log) as (process, http):
        sends(http, "stored")
        eventually(lambda: column(store, "SELECT name FROM spans") == ["stored"])
        with open_store(store) as opened:  # through the process: from now on nothing is stored
            opened.execute("ALTER TABLE spans RENAME TO spans_away")
        sends(http, "one", "two", "three")
        process.kill()
        process.wait(LIMIT_S)
        killed = process.pid
    result = cli_here("check", "--store", str(store))
    assert result.returncode == 1
    with open_store(store) as opened:
        opened.execute("ALTER TABLE spans_away RENAME TO spans")
    result = cli_here("check", "--store", str(store))
    assert result.returncode == 1
    assert f"process {killed} was not asked to stop" in result.stdout
    assert KILLED in result.stdout
    before = time.time()
    with logged(store, log) as (process, http):
        eventually(lambda: metric(http, "lightning_requests_read_again") == 3)
        assert 0 < metric(http, "lightning_former_end_seconds") < before
        eventually(lambda: "3 requests that a former process left are stored" in log.read_text())
        lines = [line for line in log.read_text().splitlines() if "not asked to stop" in line]
        assert len(lines) == 1
        assert re.match(r"2\S+Z WARNING .* The last process \d+ was not asked to stop", lines[0])
        result = cli_here("check", "--store", str(store))
        assert f"process {killed} was not asked to stop" in result.stdout
        assert "3 requests of the last process" in result.stdout
        assert result.returncode == 0  # nothing is lost, and it runs
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    assert "not asked to stop" not in cli_here("check", "--store", str(store)).stdout
    with logged(store, log) as (process, http):
        assert metric(http, "lightning_former_end_seconds") == 0
        assert metric(http, "lightning_requests_read_again") == 0
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)
    assert "not asked to stop" not in log.read_text()


def test_a_process_that_is_killed_again_and_again_is_an_alarm(tmp_path: Path) -> None:
    store, log = tmp_path / "t.duckdb", tmp_path / "log"
    for _ in range(MANY):
        with logged(store, log) as (process, http):
            assert metric(http, 'lightning_alarm{alarm="restarting"}') == 0
            process.kill()
            process.wait(LIMIT_S)
    with logged(store, log) as (process, http):
        eventually(lambda: metric(http, 'lightning_alarm{alarm="restarting"}') == 1)
        result = cli_here("check", "--store", str(store))
        assert result.returncode == 1
        assert "lightning-ingest itself failed" in result.stdout
        sends(http, "taken")
        process.terminate()
        assert process.wait(LIMIT_S) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_process_is_reported_before_its_parent_has_waited_for_it(tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    with logged(store, tmp_path / "log") as (process, _):
        process.kill()
        state = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z")
        result = cli_here("check", "--store", str(store))
    assert result.returncode == 1
    assert f"process {process.pid} was not asked to stop" in result.stdout


def test_a_killed_process_is_reported_although_another_one_has_its_number(tmp_path: Path) -> None:
    """In a container each process that is started by itself has the number 1, `check` too."""
    store = tmp_path / "t.duckdb"
    with logged(store, tmp_path / "log") as (process, _):
        process.kill()
        process.wait(LIMIT_S)
    noted = json.loads(run_file(store).read_text())
    run_file(store).write_text(json.dumps(noted | {"pid": os.getpid()}))
    told = cli_here("check", "--store", str(store))
    assert told.returncode == 1
    assert f"process {os.getpid()} was not asked to stop" in told.stdout


def test_a_process_runs_until_its_end_also_while_it_notes_why_it_ends(tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    assert not is_running(store)
    run = Run(store)
    assert is_running(store)
    run.end(RuntimeError("the loader thread ended by itself"))
    assert is_running(store)
    run.end()
    assert not is_running(store)


def test_a_second_signal_is_a_wish_too(tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    with logged(store, tmp_path / "log") as (process, _):
        process.send_signal(signal.SIGSTOP)  # so that it sees both
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        assert process.wait(LIMIT_S) in (0, 130)
    assert not run_file(store).exists()


def test_an_error_that_ended_it_is_reported(tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    Run(store).end(RuntimeError("the loader thread ended by itself"))
    result = cli_here("check", "--store", str(store))
    assert result.returncode == 1
    end = unasked_end(store)
    assert end
    assert end.sentence.endswith("RuntimeError: the loader thread ended by itself")


def test_the_full_stop_of_an_error_is_left_to_the_line_that_quotes_it() -> None:
    assert End(1, 0.0, "it ended by itself. Start it again.").sentence.endswith("Start it again")


def test_a_machine_that_stopped_is_reported_as_that(tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    Run(store)
    file = run_file(store)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"boot": "another start"}))
    end = unasked_end(store)
    assert end
    assert end.why == MACHINE


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": 1, "more": 2}', "\0"])
def test_a_file_that_cannot_be_read_gives_no_former_run(content: str, tmp_path: Path) -> None:
    run_file(tmp_path / "t").write_text(content)
    run = Run(tmp_path / "t")
    assert run.previous_end is None
    run.end()
    assert not run_file(tmp_path / "t").exists()


def test_only_recent_ends_count(tmp_path: Path) -> None:
    now = 1e9

    def clock() -> float:
        return now

    def killed_at(at: float) -> None:
        Run(tmp_path / "t", clock)
        os.utime(run_file(tmp_path / "t"), (at, at))

    for number in range(MANY):
        killed_at(now + number)
    run = Run(tmp_path / "t", lambda: now + MANY)
    assert run.recent_ends(WITHIN_SECONDS) == MANY
    later: Callable[[], float] = lambda: now + WITHIN_SECONDS + 1  # noqa: E731
    assert Run(tmp_path / "t", later).recent_ends(WITHIN_SECONDS) < MANY


def test_the_file_of_a_run_is_put_back_if_somebody_deletes_it(tmp_path: Path) -> None:
    store = tmp_path / "data" / "t.duckdb"
    store.parent.mkdir()
    run = Run(store)
    run_file(store).unlink()
    run.note_alive()
    end = unasked_end(store)
    assert end
    assert end.pid == os.getpid()
    store.parent.rename(tmp_path / "moved")
    run.note_alive()  # it cannot be put back now
    assert not store.parent.exists()
