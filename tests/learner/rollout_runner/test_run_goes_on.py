"""Runs that were killed or interrupted, and what the next start does."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from support.agent_runs import Agent, Tasks, running_command
from support.running import LIMIT_S, background, eventually, finish
from support.stores import ask

from otel_lightning.learner.rollout_runner import Grading, Job, run_agent

KILLED = """
log = open(LOG, 'a')
log.write(json.dumps(['started', task['id'], os.environ['LIGHTNING_SAMPLE']]) + '\\n'); log.flush()
time.sleep(0.02)
log.write(json.dumps(['ended', task['id'], os.environ['LIGHTNING_SAMPLE']]) + '\\n'); log.flush()
"""


def test_killed_run_goes_on_and_no_rollout_that_ended_is_run_twice_or_lost(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks(*({"id": str(i), "question": i} for i in range(30)))
    log = tmp_path / "log"
    command = agent(KILLED.replace("LOG", repr(str(log))))
    words = [sys.executable, "-m", "otel_lightning.learner", "run", "--store", str(served)]
    words += ["--tasks", str(file), "--samples", "2", "--name", "killed", "--", *command]
    log.touch()
    for least in (5, 20, 40):  # three kills, each in the middle
        with background(*words, stdout=subprocess.DEVNULL):
            eventually(lambda least=least: len(log.read_text().splitlines()) >= 2 * least, LIMIT_S)  # type: ignore[misc]
    process = finish(*words)
    assert process.returncode == 0, process.stderr
    ends = Counter(
        tuple(line[1:])
        for line in map(json.loads, log.read_text().splitlines())
        if line[0] == "ended"
    )
    rows = ask(served, "FROM attempts WHERE run_id = 'killed'")
    assert len(ends) == 60, [row for row in rows if row["status"] != "ok"]
    # An agent that was killed between its last line and its exit has not ended: it runs again.
    assert sum(ends.values()) - 60 <= 2 * 3
    good = Counter((row["task_id"], row["sample"]) for row in rows if row["status"] == "ok")
    assert len(good) == 60
    assert set(good.values()) == {1}
    assert {row["status"] for row in rows} <= {"ok", "lost"}


WAITS_AT_FIRST = """
with open(LOG, 'a') as log:
    log.write(task['question'] + '\\n')
if len(open(LOG).readlines()) == 1:
    time.sleep(600)
"""


def test_a_task_file_that_a_kill_left_empty_is_written_again(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    log = tmp_path / "log"
    log.touch()
    file = tasks({"id": "a", "question": "How many?"})
    words = [sys.executable, "-m", "otel_lightning.learner", "run", "--store", str(served)]
    words += ["--tasks", str(file), "--name", "emptied", "--"]
    words += agent(WAITS_AT_FIRST.replace("LOG", repr(str(log))))
    with background(*words, stdout=subprocess.DEVNULL):
        eventually(log.read_text, LIMIT_S)
    inputs = list((served.with_name(f"{served.name}.runs") / "emptied").rglob("*.json"))
    assert inputs
    for one in inputs:
        one.write_text("")
    process = finish(*words)
    assert "ok 1, failed 0" in process.stdout, process.stdout
    assert log.read_text() == "How many?\n" * 2


RUNNER = """
import sys
from pathlib import Path
from otel_lightning.learner.rollout_runner import Job, run_agent
store, tasks, *command = sys.argv[1:]
run_agent(store, Job(Path(tasks), command, name="ends", jobs=1, grace=60))
"""


def test_agent_that_ends_after_the_runner_was_killed_is_not_run_again(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    file = tasks({"id": "waits"}, {"id": "next"})
    script = 'echo begun >> "$0"; until test -e "$1"; do sleep 0.01; done; echo ended >> "$0"'
    command = ["sh", "-c", script, str(log), str(go)]
    log.touch()
    with background(sys.executable, "-c", RUNNER, str(served), str(file), *command):
        eventually(lambda: "begun" in log.read_text())  # and here it is killed
    go.touch()
    report = run_agent(served, Job(file, command, name="ends", jobs=1))
    assert (report.statuses, report.done_before) == ({"ok": 2}, 1)
    assert log.read_text().splitlines().count("ended") == len(["waits", "next"])


def test_first_ctrl_c_says_that_it_waits(tmp_path: Path, tasks: Tasks) -> None:
    begun, go, said = tmp_path / "begun", tmp_path / "go", tmp_path / "said"
    agent = ["sh", "-c", 'touch "$0"; until test -e "$1"; do sleep 0.05; done', str(begun), str(go)]
    words = [*running_command(tmp_path / "new.duckdb", tasks({"id": "a"})), "waits", "--", *agent]
    with said.open("w") as stderr, background(*words, stderr=stderr) as process:
        eventually(begun.exists)
        process.send_signal(signal.SIGINT)
        eventually(lambda: "Waiting for 1 running attempt to end;" in said.read_text())
        go.touch()
        assert process.wait(LIMIT_S) == 0
    assert said.read_text().count("Waiting for") == 1


def test_attempt_that_ctrl_c_cut_off_is_repeated_where_only_the_store_tells_it(
    tmp_path: Path, tasks: Tasks
) -> None:
    store, begun, go = tmp_path / "new.duckdb", tmp_path / "begun", tmp_path / "go"
    agent = ["sh", "-c", 'test -e "$1" || { touch "$0"; sleep 600; }', str(begun), str(go)]
    file = tasks({"id": "a"})
    words = [*running_command(store, file), "cut", "--retries", "0", "--", *agent]
    with background(*words) as first:
        eventually(begun.exists)
        # Two of the same might arrive as one.
        first.send_signal(signal.SIGINT)
        first.send_signal(signal.SIGTERM)
        assert first.wait(LIMIT_S) == 1
    store.with_name("new.duckdb.runs").rename(tmp_path / "gone")
    go.touch()
    job = Job(file, agent, name="cut", retries=0, stdin="none")
    assert run_agent(store, job, Grading(by_exit_code=True)).statuses == {"ok": 1}
