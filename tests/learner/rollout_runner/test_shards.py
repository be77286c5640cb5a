"""A run in parts on machines without the store, and its grading where the store is."""

import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.running import LIMIT_S, background, eventually, running
from support.sent_call import SEND_CALL
from support.stores import ask

from otel_lightning.learner.cli import cli

TOKEN = secrets.token_hex(8)
ROWS = [{"id": f"t{n}", "question": str(n), "expected": str(n % 2)} for n in range(12)]
AGENT = """
import json, sys
task = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    file.write(task["id"] + "\\n")
print(int(task["question"]) % 4)
"""
GRADE = """
def right(rollouts):
    return (rollouts["output"].str.strip_chars() == rollouts["expected"]).cast(float)
"""

Run = Callable[..., Result]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """An ingester that other machines reach, with a token; its store is in the folder `home`."""
    (tmp_path / "home").mkdir()
    with running(tmp_path / "home" / "traces.duckdb", "--token", TOKEN) as ingester:
        yield f"http://{ingester.http}"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command in the folder of a machine, with its own copy of the tasks and the agent."""

    def of(machine: str, *options: str, agent: str = AGENT, **variables: str) -> Result:
        folder = tmp_path / machine
        folder.mkdir(exist_ok=True)
        (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        (folder / "agent.py").write_text(agent)
        (folder / "grade.py").write_text(GRADE)
        files = ["--store", f"{folder}/traces.duckdb", "--tasks", f"{folder}/tasks.jsonl"]
        command = ["--", sys.executable, "-I", "-S", f"{folder}/agent.py", str(tmp_path / "ran")]
        grade = ["--grade", f"{folder}/grade.py:right"]
        words: list[Any] = ["run", *files, *grade, *options, *command]
        return CliRunner().invoke(cli, words, env=variables, catch_exceptions=False)

    return of


@pytest.mark.slow
def test_parts_on_two_machines_are_graded_where_the_store_is_and_nothing_runs_twice(
    endpoint: str, run: Run, tmp_path: Path
) -> None:
    header = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {TOKEN}"}
    shared = ("--name", "evening", "--endpoint", endpoint)
    for number in (1, 2):
        part = run(f"machine{number}", *shared, "--shard", f"{number}/2", **header)
        assert part.exit_code == 0, part.output
        assert "grade there" in part.stderr
        assert "--name evening" in part.stderr
        assert "No rollout has a reward.\n" in part.stdout
        assert not (tmp_path / f"machine{number}" / "traces.duckdb").exists()
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == sorted(row["id"] for row in ROWS)

    whole = run("home", "--name", "evening")  # without the token: no agent runs
    assert whole.exit_code == 0, whole.output
    assert "Run evening: 12 rollouts, 12 of them before this start." in whole.stdout
    assert "Mean reward 0.5000" in whole.stdout
    assert (tmp_path / "ran").read_text().split() == ran, "an ended rollout ran again"
    store = tmp_path / "home" / "traces.duckdb"
    attempts = Counter(row["task_id"] for row in ask(store, "SELECT task_id FROM attempts"))
    assert attempts == dict.fromkeys(ran, 1)
    (graded,) = ask(store, "SELECT count(*) AS n, avg(value) AS mean FROM rewards")
    assert (graded["n"], graded["mean"]) == (12, 0.5)


@pytest.mark.slow
def test_parts_run_at_once_in_one_folder_as_machines_with_a_shared_disk_do(
    endpoint: str, run: Run, tmp_path: Path
) -> None:
    header = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {TOKEN}"}
    shared = ("--name", "array", "--endpoint", endpoint)
    learn = [sys.executable, "-m", "otel_lightning.learner", "run", "--shard", "2/2", *shared]
    run("disk", *shared, "--limit", "1", "--shard", "1/2", **header)  # writes the files
    wait = tmp_path / "wait"
    waits = (
        f"import time, pathlib\nwhile not pathlib.Path({str(wait)!r}).exists(): time.sleep(0.05)"
    )
    slow = [*learn, "--tasks", "tasks.jsonl", "--", sys.executable, "-I", "-S", "-c", waits]
    with background(*slow, cwd=tmp_path / "disk", env=os.environ | header) as other:
        journal = tmp_path / "disk/traces.duckdb.runs/part-2-of-2/array/journal.jsonl"
        eventually(lambda: journal.exists() and b"started" in journal.read_bytes(), LIMIT_S)
        part = run("disk", *shared, "--shard", "1/2", **header)
        assert part.exit_code == 0, part.output
        wait.touch()
        assert other.wait(LIMIT_S) == 0
    store = tmp_path / "home" / "traces.duckdb"
    count = "SELECT count(*) AS n, count(DISTINCT task_id) AS tasks FROM attempts"
    eventually(lambda: ask(store, count) == [{"n": len(ROWS), "tasks": len(ROWS)}])


@pytest.mark.slow
def test_part_that_no_machine_ran_runs_where_the_store_is(
    endpoint: str, run: Run, tmp_path: Path
) -> None:
    header = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {TOKEN}"}
    shared = ("--name", "night", "--endpoint", endpoint)
    assert run("machine1", *shared, "--shard", "1/2", **header).exit_code == 0
    first = (tmp_path / "ran").read_text().split()
    whole = run("home", "--name", "night", **header)
    assert whole.exit_code == 0, whole.output
    assert f"12 rollouts, {len(first)} of them before this start." in whole.stdout
    assert sorted((tmp_path / "ran").read_text().split()) == sorted(row["id"] for row in ROWS)


CALLS = (
    SEND_CALL
    + """
with open(sys.argv[1], "a") as file:
    file.write(task["id"] + "\\n")
send_call(task["question"], "Done.")
print(int(task["question"]) % 4, flush=True)
time.sleep(float(os.environ.get("STAYS", "0")))
"""
)


@pytest.mark.slow
def test_attempt_whose_machine_was_lost_is_repeated_under_another_id(
    endpoint: str, run: Run, tmp_path: Path
) -> None:
    header = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {TOKEN}"}
    store = tmp_path / "home" / "traces.duckdb"
    lost = tmp_path / "lost"
    lost.mkdir()
    (lost / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (lost / "agent.py").write_text(CALLS)
    learn = [sys.executable, "-m", "otel_lightning.learner", "run", "--name", "storm"]
    agent = ["--", sys.executable, "-I", "-S", "agent.py", str(tmp_path / "ran")]
    words = [*learn, "--endpoint", endpoint, "--tasks", "tasks.jsonl", *agent]
    stays = os.environ | header | {"STAYS": "600"}
    calls = "SELECT count(*) AS n FROM llm_calls"
    with background(*words, cwd=lost, env=stays) as runner:
        eventually(lambda: ask(store, calls)[0]["n"] == 2, LIMIT_S)
        runner.kill()

    home = run("home", "--name", "storm", agent=CALLS, **header)
    assert home.exit_code == 0, home.output
    assert "2 attempts were repeated" in home.stderr
    ends = ask(store, "SELECT task_id, attempt, status FROM attempts ORDER BY task_id, attempt")
    assert Counter(row["status"] for row in ends) == {"ok": len(ROWS), "lost": 2}
    assert {row["attempt"] for row in ends if row["status"] == "lost"} == {0}
    mixed = "SELECT rollout_id FROM llm_calls GROUP BY ALL HAVING count(DISTINCT trace_id) > 1"
    assert ask(store, mixed) == []
    again = run("home", "--name", "storm", agent=CALLS, **header)
    assert "12 rollouts, 12 of them before this start." in again.stdout


def test_part_without_a_rollout_is_done_at_once_and_an_empty_split_is_an_error(
    run: Run, tmp_path: Path
) -> None:
    """A SLURM array may have more parts than there are rollouts."""
    parts = [run("home", "--limit", "2", "--shard", f"{number}/4") for number in (1, 2, 3, 4)]
    assert [part.exit_code for part in parts] == [0] * 4, [part.output for part in parts]
    empty = [part for part in parts if "this shard has no rollout" in part.stdout]
    assert len(empty) >= 2
    assert len((tmp_path / "ran").read_text().split()) == 2
    nothing = run("home", "--split", "heldout", "--held-out", "0")
    assert (nothing.exit_code, "--held-out" in nothing.stderr) == (1, True)


def test_parts_without_a_shared_name_and_a_wrong_token_are_refused_before_an_agent_runs(
    endpoint: str, run: Run, tmp_path: Path
) -> None:
    nameless = run("machine1", "--endpoint", endpoint, "--shard", "1/2")
    assert nameless.exit_code == 1
    assert "--name" in nameless.stderr
    header = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer wrong"}
    wrong = run("machine1", "--endpoint", endpoint, "--name", "x", **header)
    assert wrong.exit_code == 1
    assert "401" in wrong.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("endpoint")
def test_agents_without_the_token_of_the_store_are_not_run_since_no_call_of_theirs_would_be_stored(
    run: Run, tmp_path: Path
) -> None:
    without = run("home", "--name", "bare")
    assert without.exit_code == 1
    assert "requires a token" in without.stderr
    wrong = run("home", "--name", "bare", OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer no")
    assert wrong.exit_code == 1
    assert "refuses the token in OTEL_EXPORTER_OTLP_HEADERS" in wrong.stderr
    assert not (tmp_path / "ran").exists()
    right = run(
        "home", "--name", "bare", OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer {TOKEN}"
    )
    assert right.exit_code == 0, right.output
