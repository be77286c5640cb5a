"""When a run starts an ingester, and how it ends with the run."""

import json
import signal
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.agent_runs import REWARDED, Agent, Tasks, running_command
from support.otlp_client import send
from support.running import LIMIT_S, background, eventually, finish, serving, start
from support.stores import ask

from otel_lightning.collector.store import StoreError, open_store, read_server
from otel_lightning.learner import DataError
from otel_lightning.learner.rollout_runner import Grading, Job, run_agent
from otel_lightning.learner.rollout_runner.ingester.receiver import (
    INGESTER,
    Event,
    Receiver,
    receiving,
)
from otel_lightning.learner.rollout_runner.launcher.processes import Processes


def started_ingester(store: Path) -> bool:
    """Whether a run of this store has started an ingester: its output is kept."""
    return any(store.with_name(f"{store.name}.runs").glob("*/lightning-ingest.err"))


@pytest.mark.usefixtures("only_when_asked")
def test_quick_agents_that_send_nothing_start_no_ingester_and_the_new_store_has_the_journal(
    tmp_path: Path, tasks: Tasks
) -> None:
    store = tmp_path / "new.duckdb"
    file = tasks({"id": "a", "question": "1"}, {"id": "b", "question": "2"})
    quick = Job(file, ["sh", "-c", "test $LIGHTNING_TASK_ID = a"], name="quick", stdin="none")
    report = run_agent(store, quick, Grading(by_exit_code=True))
    assert {report.tasks[one]: value for one, value in report.rewards.items()} == {"a": 1, "b": 0}
    assert not started_ingester(store)
    assert store.stat().st_mode & 0o077 == 0
    assert {row["task_id"] for row in ask(store, "FROM tasks")} == {"a", "b"}
    assert sorted(row["status"] for row in ask(store, "FROM attempts")) == ["failed", "ok"]
    assert len(ask(store, "FROM rewards")) == 2
    again = run_agent(store, quick, Grading(by_exit_code=True))
    assert again.done_before == 2
    assert len(ask(store, "FROM attempts")) == 2


@pytest.mark.usefixtures("only_when_asked")
def test_quick_agents_of_a_new_store_are_stored_without_a_grader_too(
    tmp_path: Path, tasks: Tasks
) -> None:
    store = tmp_path / "new.duckdb"
    job = Job(tasks({"id": "a"}), ["true"], stdin="none")
    report = run_agent(store, job)
    assert report.rewards == {}
    assert report.silent == 1
    assert not started_ingester(store)
    assert [row["status"] for row in ask(store, "FROM attempts")] == ["ok"]


def test_first_request_of_an_agent_starts_the_ingester_of_a_new_store(
    tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    store = tmp_path / "new.duckdb"
    job = Job(tasks({"id": "a", "worth": 0.75}), agent(REWARDED), name="first")
    report = run_agent(store, job, Grading(reward="success"))
    assert list(report.rewards.values()) == [0.75]
    assert started_ingester(store)
    assert not store.with_name("new.duckdb.server").exists()
    assert [row["status"] for row in ask(store, "FROM attempts")] == ["ok"]


WAITS = ["sh", "-c", 'touch "$0"; until test -e "$1"; do sleep 0.05; done']
"""An agent that makes its first file, and ends when there is its second."""


@pytest.mark.parametrize("exists", [False, True])
def test_second_run_of_a_store_uses_the_ingester_of_the_first_until_it_ends(
    tmp_path: Path, tasks: Tasks, *, exists: bool
) -> None:
    store, running = tmp_path / "new.duckdb", tmp_path / "running"
    if exists:
        with open_store(store):
            pass
    words = running_command(store, tasks({"id": "a"}))
    second = tmp_path / "second"
    third, said = tmp_path / "third", tmp_path / "said"
    with (
        said.open("w") as errors,
        background(*words, "first", "--", *WAITS, running, second, stderr=errors) as first,
    ):
        eventually(running.exists)
        with background(*words, "second", "--", *WAITS, second, third) as other:
            # The agent of the first has ended, and the second still needs the ingester.
            eventually(lambda: first.poll() is not None or "uses" in said.read_text())
            third.touch()
            assert other.wait(LIMIT_S) == 0
        assert first.wait(LIMIT_S) == 0
    assert [len(ask(store, "FROM attempts"))] == [2]
    outputs = store.with_name("new.duckdb.runs").glob("*/lightning-ingest.err")
    assert [file.parent.name for file in outputs] == ["first"]


def test_interrupt_ends_the_wait_for_another_run(tmp_path: Path, tasks: Tasks) -> None:
    store, running = tmp_path / "new.duckdb", tmp_path / "running"
    words = running_command(store, tasks({"id": "a"}))
    said, second = tmp_path / "said", tmp_path / "second"
    with (
        said.open("w") as errors,
        background(*words, "first", "--", *WAITS, running, second, stderr=errors) as first,
    ):
        eventually(running.exists)
        endless = ["sh", "-c", 'touch "$0"; sleep 600', second]
        with background(*words, "second", "--", *endless):
            eventually(lambda: "uses" in said.read_text())
            first.send_signal(signal.SIGINT)
            assert first.wait(LIMIT_S) == 0
    assert "Traceback" not in said.read_text()


def test_ingester_of_a_run_has_ended_before_another_run_may_look_for_one(tmp_path: Path) -> None:
    store = tmp_path / "new.duckdb"
    with Processes() as processes:
        with receiving(store, processes, tmp_path):
            assert read_server(store) is not None
        assert processes.service_ended(INGESTER)
        assert read_server(store) is None


def test_ingester_of_a_new_store_that_cannot_start_ends_the_run_with_its_last_words(
    tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    store = tmp_path / "new.duckdb"
    # Another program takes the store while the agent runs.
    body = f"open({str(store)!r}, 'w').write('no store')\ntime.sleep(600)"
    with pytest.raises(DataError, match=r"ended by itself. Its last output: .*not a DuckDB file"):
        run_agent(store, Job(tasks({"id": "a"}), agent(body)), Grading(by_exit_code=True))


@pytest.mark.parametrize("variable", ["LIGHTNING_TOKEN", "LIGHTNING_MAX_VALUE_LENGTH"])
def test_ingester_with_settings_of_its_own_starts_with_the_run(
    tmp_path: Path, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    store = tmp_path / "new.duckdb"
    monkeypatch.setenv(variable, "100")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer 100")
    run_agent(store, Job(tasks({"id": "a"}), ["true"], stdin="none"), Grading(by_exit_code=True))
    assert started_ingester(store)


def test_store_that_nobody_serves_is_served_during_the_run_only(
    tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    store = tmp_path / "new.duckdb"
    words = [sys.executable, "-m", "otel_lightning.learner", "run", "--store", str(store)]
    words += ["--tasks", str(tasks({"id": "a", "question": "1"})), "--exit-code-is-reward"]
    process = finish(*words, "--", *agent("print(1)"))
    assert process.returncode == 0, process.stderr
    assert "ok 1, failed 0, timed out 0, lost 0" in process.stdout
    assert "Mean reward 1.0000" in process.stdout
    assert not store.with_name("new.duckdb.server").exists()
    assert [row["status"] for row in ask(store, "FROM attempts")] == ["ok"]


def test_run_beside_an_ingester_that_cannot_store_ends_with_a_sentence(
    tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    path = tmp_path / "broken.duckdb"
    with open_store(path) as store:
        # The loader's INSERT names this column, so no log record can be stored any more.
        store.execute("ALTER TABLE logs RENAME COLUMN severity TO gravity")
    ingester = start(path)
    try:
        body = json.dumps({"rollout_id": "r", "value": 1}).encode()
        sent = send(ingester.http, body, path="/v1/feedback", Content_Type="application/json")
        assert sent.status == 200
        words = [sys.executable, "-m", "otel_lightning.learner", "run", "--store", str(path)]
        words += ["--tasks", str(tasks({"id": "a"})), "--store-timeout", "1"]
        process = finish(*words, "--", *agent("print(1)"))
    finally:
        ingester.stop()
    assert process.returncode == 1
    assert "made no progress in 1 seconds" in process.stderr
    assert f"lightning-ingest check --store {path}" in process.stderr


def test_tasks_and_rewards_by_exit_code_come_in_the_request_of_the_last_attempts(
    served: Path, tasks: Tasks, agent: Agent
) -> None:
    """Each request is a transaction of the store, so a second one would cost as much again."""
    file = tasks({"id": "code-a"}, {"id": "code-b"})
    job = Job(file, agent("sys.exit(task['id'] == 'code-b')"), name="codes")
    report = run_agent(served, job, Grading(by_exit_code=True))
    assert sorted(report.rewards.values()) == [0.0, 1.0]
    rows = ask(
        served,
        "SELECT event_name AS name, received_at::VARCHAR AS received FROM logs"
        f" WHERE attributes['lightning.rollout.id'] IN ({', '.join(map(repr, report.rewards))})"
        " OR attributes['lightning.task.id'] IN ('code-a', 'code-b')",
    )
    names = Counter(row["name"] for row in rows)
    assert names == {
        "lightning.task": 2,
        "lightning.attempt": 2,
        "gen_ai.evaluation.result": 2,
    }
    assert len({row["received"] for row in rows}) == 1
    again = run_agent(served, job, Grading(by_exit_code=True))
    assert (again.done_before, again.rewards) == (2, report.rewards)


def test_receiver_that_is_busy_for_longer_than_a_request_may_take_is_waited_for() -> None:
    """It answers 503 while deriving lags; the journal has the attempts meanwhile."""
    gave_up = False
    still_busy = iter(range(5))

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            is_busy = not gave_up or next(still_busy, None) is not None
            self.send_response(503 if is_busy else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    event = Event("lightning.task", 1, {}, {})
    with serving(HTTPServer(("127.0.0.1", 0), Busy)) as url:
        with pytest.raises(StoreError, match="503"):
            Receiver(url, {}, patience=0.1).send([event])
        gave_up = True
        Receiver(url, {}, patience=LIMIT_S).send([event])
    assert next(still_busy, None) is None
