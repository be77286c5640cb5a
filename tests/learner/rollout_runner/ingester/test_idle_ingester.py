"""Runs of a store that exists and that nobody serves: when they start its ingester."""

import os
import resource
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.running import LIMIT_S, background, eventually, finish, running
from support.stores import ask

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.resume import resume
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import open_store
from otel_lightning.learner import DataError
from otel_lightning.learner.rollout_runner import Grading, Job, run_agent
from otel_lightning.learner.rollout_runner.ingester.receiver import Event, _request

Tasks = Callable[..., Path]
EXITS = Grading(by_exit_code=True)
HOLD = """
import sys, duckdb
held = duckdb.connect(sys.argv[1], read_only=True)
print("held", flush=True)
sys.stdin.read()"""
"""Hold a store's file until the standard input ends."""
READS = """
import os, socket, sys, time
from pathlib import Path
from otel_lightning.collector.store import open_store
said = Path(sys.argv[2])
host, port = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://").split(":")
with open_store(sys.argv[1], read_only=True), socket.create_connection((host, int(port)), 60):
    while not (said.exists() and "Waiting" in said.read_text()):
        time.sleep(0.05)"""
"""Hold a store's file, ask for the ingester, and hold on until it waits for the file."""
CONNECTS = """
to=${OTEL_EXPORTER_OTLP_ENDPOINT#http://}
test $(wc -l < "$0") = 2 || { exec 3<>/dev/tcp/${to%:*}/${to#*:}; sleep 600; }"""
"""In the first attempt, connect to the receiver, and stay."""


ONLY_WHEN_ASKED = """
from otel_lightning.learner.__main__ import main
from otel_lightning.learner.rollout_runner.ingester import idle_ingester
idle_ingester.WITHIN_SECONDS = idle_ingester.QUICK_SECONDS = 600.0
main()
"""
"""Let no time start the ingester of a run: its agent may be slow here."""


def logged(rollout: str) -> bytes:
    """A request with a reward, which needs no trace."""
    attributes = {"gen_ai.evaluation.score.value": 0.5, "lightning.rollout.id": rollout}
    event = Event("gen_ai.evaluation.result", 1, {}, attributes)
    body: bytes = _request([event]).SerializeToString()
    return body


def started_ingester(store: Path) -> bool:
    return any(store.with_name(f"{store.name}.runs").glob("*/lightning-ingest.err"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that exists, and its spool, all of which is stored."""
    path = tmp_path / "old.duckdb"
    spool = Spool(spool_folder(path))
    with open_store(path) as opened:
        spool.append("logs", logged("before")).result(LIMIT_S)
        resume(opened, spool)
        request = Request("logs", 1, logged("before"))
        load(opened, [request], end=spool.end, dead_letters=path.parent, derives=False)
        opened.execute("DELETE FROM stale")
    spool.close()
    return path


@pytest.fixture
def quick(tasks: Tasks) -> Job:
    """An agent that ends at once and sends nothing."""
    return Job(tasks({"id": "a"}), ["true"], name="quick", stdin="none")


@pytest.mark.usefixtures("only_when_asked")
def test_quick_agents_that_send_nothing_start_no_ingester_and_the_store_has_the_journal(
    store: Path, quick: Job
) -> None:
    assert run_agent(store, quick, EXITS).mean == 1
    assert not started_ingester(store)
    assert len(ask(store, "FROM rewards")) == 1
    assert [row["status"] for row in ask(store, "FROM attempts")] == ["ok"]


def test_quick_agents_run_in_a_process_with_many_open_files(store: Path, quick: Job) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_100):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert run_agent(store, quick, EXITS).mean == 1


@pytest.mark.usefixtures("only_when_asked")
def test_what_a_store_knows_is_not_run_again_though_the_journal_is_gone(
    store: Path, quick: Job
) -> None:
    run_agent(store, quick, EXITS)
    journal = store.with_name("old.duckdb.runs")
    journal.rename(journal.with_name("gone"))
    again = run_agent(store, quick, EXITS)
    assert (again.done_before, again.mean) == (1, 1)
    assert not started_ingester(store)
    assert len(ask(store, "FROM tasks")) == len(ask(store, "FROM attempts")) == 1
    assert len(ask(store, "SELECT * FROM logs WHERE event_name = 'lightning.task'")) == 1


def test_requests_that_wait_in_the_spool_are_stored(store: Path, quick: Job) -> None:
    spool = Spool(spool_folder(store))
    spool.append("logs", logged("waited")).result(LIMIT_S)
    spool.close()
    run_agent(store, quick, EXITS)
    assert started_ingester(store)
    found = {row["rollout_id"] for row in ask(store, "FROM reward_events")}
    assert {"waited"} < found


def test_requests_in_the_spool_of_another_store_are_stored(store: Path, quick: Job) -> None:
    shutil.rmtree(spool_folder(store))
    spool = Spool(spool_folder(store))
    # As long as the one that the store has: its position is the end of this spool, too.
    spool.append("logs", logged("others")).result(LIMIT_S)
    spool.close()
    run_agent(store, quick, EXITS)
    assert started_ingester(store)
    assert len(ask(store, "SELECT * FROM rewards WHERE rollout_id = 'others'")) == 1


def test_rows_that_are_not_derived_are_derived(store: Path, quick: Job) -> None:
    with open_store(store) as opened:
        request = Request("logs", 1, logged("stale"))
        load(opened, [request], dead_letters=store.parent)
    run_agent(store, quick, EXITS)
    assert started_ingester(store)
    assert len(ask(store, "SELECT * FROM rewards WHERE rollout_id = 'stale'")) == 1


@pytest.mark.parametrize("exits_at_once", [True, False])
@pytest.mark.usefixtures("only_when_asked")
def test_run_whose_store_is_taken_by_another_ingester_says_so_and_goes_on_when_run_again(
    store: Path, tasks: Tasks, *, exits_at_once: bool
) -> None:
    ran, go = store.with_name("ran"), store.with_name("go")
    script = 'echo >> "$0"; until test -e "$1"; do sleep 0.05; done'
    command = ["bash", "-c", script + ("" if exits_at_once else CONNECTS), str(ran), str(go)]
    job = Job(tasks({"id": "a"}), command, name="taken", stdin="none")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(run_agent, store, job, EXITS)
        eventually(ran.exists)
        with running(store):
            go.touch()
            with pytest.raises(DataError, match="Another lightning-ingest has begun to serve"):
                first.result(LIMIT_S)
            assert run_agent(store, job, EXITS).mean == 1
    # What had ended does not run again.
    assert len(ran.read_text()) == (1 if exits_at_once else 2)


@pytest.mark.parametrize("first_is_graded", [True, False])
def test_run_that_needs_an_ingester_at_once_and_one_that_may_not_share_one(
    store: Path, tasks: Tasks, *, first_is_graded: bool
) -> None:
    ran, go = store.with_name("ran"), store.with_name("go")
    grader = "def right(rollouts):\n    return (rollouts['output'] == '').cast(float)\n"
    (store.parent / "grade.py").write_text(grader)
    rule, exits = ["--grade", f"{store.parent}/grade.py:right"], ["--exit-code-is-reward"]
    words = [sys.executable, "-m", "otel_lightning.learner", "run", "--store", str(store)]
    words += ["--tasks", str(tasks({"id": "a"})), "--stdin", "none"]
    first, second = (rule, exits) if first_is_graded else (exits, rule)
    waits = ["--", "sh", "-c", 'touch "$0"; until test -e "$1"; do sleep 0.05; done']
    with background(*words, *first, "--name", "first", *waits, ran, go) as earlier:
        eventually(lambda: store.with_name("old.duckdb.runs").exists())
        process = finish(*words, *second, "--name", "second", "--", "touch", str(go))
        assert process.returncode == 0, process.stderr
        assert earlier.wait(LIMIT_S) == 0
    assert len(ask(store, "FROM attempts")) == 2
    outputs = store.with_name("old.duckdb.runs").glob("*/lightning-ingest.err")
    assert len([file.parent.name for file in outputs]) == 1


@pytest.mark.usefixtures("only_when_asked")
def test_ingester_waits_until_an_agent_has_closed_the_store(store: Path, tasks: Tasks) -> None:
    said = store.with_name("old.duckdb.runs") / "reads" / "lightning-ingest.err"
    command = [sys.executable, "-c", READS, str(store), str(said)]
    job = Job(tasks({"id": "a"}), command, name="reads", stdin="none", timeout=120)
    assert run_agent(store, job, EXITS).statuses == {"ok": 1}
    assert started_ingester(store)


def test_runner_waits_until_another_process_has_closed_the_store(
    store: Path, quick: Job, caplog: pytest.LogCaptureFixture
) -> None:
    pipes = {"stdin": -1, "stdout": -1}
    with (
        background(sys.executable, "-c", HOLD, str(store), **pipes) as holder,
        ThreadPoolExecutor(1) as threads,
    ):
        assert holder.stdout.readline() == b"held\n"
        run = threads.submit(run_agent, store, quick, EXITS)
        eventually(lambda: "another process holds" in caplog.text)
        holder.stdin.close()
        assert run.result(LIMIT_S).mean == 1


def test_run_whose_agents_send_nothing_loads_nothing_that_reads_spans_or_talks_to_an_ingester(
    tmp_path: Path, tasks: Tasks
) -> None:
    store = tmp_path / "new.duckdb"
    words = [sys.executable, "-X", "importtime", "-c", ONLY_WHEN_ASKED, "run"]
    words += ["--tasks", str(tasks({"id": "a"})), "--store", str(store), "--exit-code-is-reward"]
    process = finish(*words, "--stdin", "none", "--", "true")
    assert process.returncode == 0, process.stderr
    loaded = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}
    assert "otel_lightning.collector.derive.batches.logs_without_trace" in loaded
    dear = {"otel_lightning.collector.derive.dialects", "numpy.ma", "http.client", "ssl"}
    assert not dear & loaded
    assert [row["value"] for row in ask(store, "FROM rewards")] == [1]
