"""Whole runs: agents on tasks, their statuses and their rewards."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.otlp_client import send
from support.running import background, eventually, finish, serving, start
from support.stores import ask

from otel_lightning.collector.store import StoreError, open_store, read_server
from otel_lightning.learner import DataError
from otel_lightning.learner.cli import cli
from otel_lightning.learner.rollout_runner import Arms, Grading, Job, run_agent
from otel_lightning.learner.rollout_runner.ingester.receiver import (
    INGESTER,
    Event,
    Receiver,
    receiving,
)
from otel_lightning.learner.rollout_runner.launcher.processes import Processes

Tasks = Callable[..., Path]
Agent = Callable[[str], list[str]]
FOUR = """
match task["id"]:
    case "failed": sys.exit("it broke")
    case "timeout": time.sleep(600)
    case "lost": os.kill(os.getpid(), 9)
print(task["question"])"""


def rule(folder: Path, body: str) -> str:
    (folder / "grade.py").write_text(f"import polars as pl\n{body}\n")
    return f"{folder}/grade.py:right"


RIGHT = """
def right(rollouts):
    return (rollouts["output"].str.strip_chars() == rollouts["expected"]).cast(float)"""


def test_agent_runs_once_for_each_task_and_sample_and_the_same_call_runs_what_is_missing(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks(
        {"id": "a", "question": "x", "expected": "x", "metadata": {"level": 1}},
        {"id": "b", "question": "y", "expected": "z"},
    )
    command = agent(
        f"open({str(tmp_path / 'ran')!r}, 'a').write(os.environ['LIGHTNING_ROLLOUT_ID'] + '\\n')\n"
        "assert 'expected' not in task and 'metadata' not in task\n"
        "print(task['question'])"
    )
    grading = Grading(
        rule=rule(tmp_path, RIGHT.replace("right", "same_text")).replace(":right", ":same_text")
    )
    first = run_agent(served, Job(file, command, samples=2), grading)
    assert first.statuses == {"ok": 4}
    assert first.mean == 0.5
    more = run_agent(served, Job(file, command, samples=3), grading)
    assert (more.planned, more.done_before, more.mean) == (6, 4, 0.5)
    ran = (tmp_path / "ran").read_text().split()
    assert len(ran) == len(set(ran)) == 6
    rows = ask(served, f"FROM attempts WHERE run_id = '{first.run_id}'")
    assert {row["rollout_id"] for row in rows} == set(ran)
    assert Counter((row["task_id"], row["sample"]) for row in rows).most_common(1)[0][1] == 1
    assert {row["seed"] for row in rows if row["task_id"] == "a"} != {rows[0]["seed"]}
    (task,) = ask(served, "FROM tasks WHERE task_id = 'a' AND (metadata ->> '$.level') = '1'")
    assert (task["input"], task["expected"]) == ('{"question":"x"}', '"x"')


def test_ok_failed_timeout_and_lost_are_four_things_and_the_lost_has_no_reward(
    served: Path, tasks: Tasks, agent: Agent
) -> None:
    names = ["ok", "failed", "timeout", "lost"]
    file = tasks(*({"id": name, "question": name} for name in names))
    job = Job(file, agent(FOUR), name="four", timeout=10, retries=1)
    report = run_agent(served, job, Grading(by_exit_code=True))
    assert report.statuses == dict.fromkeys(names, 1)
    rows = ask(served, "FROM attempts WHERE run_id = 'four' ORDER BY task_id, attempt")
    assert [(row["task_id"], row["status"], row["attempt"]) for row in rows] == [
        ("failed", "failed", 0),
        ("lost", "lost", 0),
        ("lost", "lost", 1),
        ("ok", "ok", 0),
        ("timeout", "timeout", 0),
    ]
    assert rows[0]["errors"] == "it broke\n"
    assert rows[1]["reason"] == "it was ended by signal 9"
    rewards = {report.tasks[rollout]: value for rollout, value in report.rewards.items()}
    assert rewards == {"ok": 1, "failed": 0}
    forced = run_agent(served, job, Grading(by_exit_code=True, failed_reward=-1))
    assert sorted(forced.rewards.values()) == [-1, -1, 1]


def test_command_tells_why_attempts_were_lost_or_failed_and_which_tasks_have_no_id(
    served: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks({"id": "lost", "n": 1}, {"n": 2}, {"n": 3})
    body = "os.kill(os.getpid(), 9) if 'id' in task and task['id'] == 'lost' else print('x' * 9999)"
    options = ["--retries", "1", "--max-output", "1000", "--exit-code-is-reward", "--name", "why"]
    place = ["--store", str(served), "--tasks", str(file)]
    done = CliRunner().invoke(
        cli, ["run", *place, *options, "--", *agent(f"{body}; time.sleep(9)")]
    )
    assert done.exit_code == 1
    assert "2 tasks have no id in the file, so a hash of the fields is the id." in done.stderr
    assert "3 rollouts have no recorded model call" in done.stderr
    assert "2 attempts lost: it was ended by signal 9." in done.stderr
    assert "2 attempts failed: it wrote more than the limit of --max-output." in done.stderr
    assert "1 rollout is missing. 1 of them was lost in each attempt:" in done.stderr
    assert "--rerun lost" in done.stderr


def test_grading_command_that_fails_on_a_rollout_is_no_reward_of_0(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks(*({"id": name, "question": name, "expected": [name]} for name in "abcd"))
    grader = tmp_path / "grader.py"
    grader.write_text(
        "import json, sys\n"
        "asked = json.load(sys.stdin)\n"
        "if asked['task_id'] == 'c': raise ValueError('no idea')\n"
        "if asked['task_id'] == 'd': print('NaN')\n"
        "elif asked['expected'] == ['a']: print('{\"score\": 0.5, \"explanation\": \"half\"}')\n"
        "else: print(int(asked['output'].strip() == asked['input']['question']))\n"
    )
    report = run_agent(
        served,
        Job(file, agent("print(task['question'])"), name="command"),
        Grading(command=[sys.executable, "-I", "-S", str(grader)]),
    )
    assert {report.tasks[one]: value for one, value in report.rewards.items()} == {"a": 0.5, "b": 1}
    assert any("ended with code 1" in p and "no idea" in p for p in report.problems)
    assert any("printed 'NaN', no number" in problem for problem in report.problems)
    (row,) = ask(
        served,
        "SELECT s.explanation, s.value FROM judgements s JOIN attempts a USING (rollout_id) "
        "WHERE run_id = 'command' AND a.task_id = 'a'",
    )
    assert row == {"explanation": "half", "value": 0.5}


def test_rule_that_raises_on_a_rollout_leaves_it_out_and_one_that_cannot_be_read_starts_nothing(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks({"id": "a", "question": "1"}, {"id": "b", "question": "one"})
    job = Job(file, agent("print(task['question'])"), name="raises")
    body = "def number(rollouts):\n    return rollouts['output'].str.strip_chars().cast(float)"
    report = run_agent(served, job, Grading(rule=rule(tmp_path, body).replace("right", "number")))
    assert list(report.rewards.values()) == [1.0]
    assert "InvalidOperationError" in report.problems[0]
    assert not (tmp_path / "never").exists()
    never = Job(file, agent(f"open({str(tmp_path / 'never')!r}, 'w')"), name="never")
    with pytest.raises(DataError, match="no function 'nothing'"):
        run_agent(served, never, Grading(rule=f"{tmp_path}/grade.py:nothing"))
    assert not (tmp_path / "never").exists()


def test_agent_that_cannot_work_is_not_run_on_all_tasks(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks(*({"id": str(i), "question": i} for i in range(100)))
    job = Job(file, agent("sys.exit('no module named openai')"), name="hopeless")
    with pytest.raises(DataError, match=r"first 20 attempts .* no module named openai"):
        run_agent(served, job)
    with pytest.raises(DataError, match=r"cannot be started: .*No such file.* after '--'"):
        run_agent(served, Job(file, [str(tmp_path / "agent")], name="absent"))


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
            eventually(lambda least=least: len(log.read_text().splitlines()) >= 2 * least, 60)  # type: ignore[misc]
    done = finish(*words)
    assert done.returncode == 0, done.stderr
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
        eventually(log.read_text, 60)
    inputs = list((served.with_name(f"{served.name}.runs") / "emptied").rglob("*.json"))
    assert inputs
    for one in inputs:
        one.write_text("")
    done = finish(*words)
    assert "ok 1, failed 0" in done.stdout, done.stdout
    assert log.read_text() == "How many?\n" * 2


def started_ingester(store: Path) -> bool:
    """Whether a run of this store has started an ingester: its output is kept."""
    return any(store.with_name(f"{store.name}.runs").glob("*/lightning-ingest.err"))


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


def test_run_without_a_reward_says_how_to_grade_it_without_running_again(
    tmp_path: Path, tasks: Tasks
) -> None:
    place = ["--store", f"{tmp_path}/new.duckdb", "--tasks", str(tasks({"id": "a"}, {"id": "b"}))]

    def run(*more: str) -> str:
        done = CliRunner().invoke(cli, ["run", *place, "--stdin", "none", *more, "--", "true"])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "No rollout has a reward. Grade them: give the same command with --grade" in run()
    graded = run("--exit-code-is-reward")
    assert "2 rollouts, 2 of them before this start." in graded
    assert "Mean reward 1.0000" in graded


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


def test_output_that_the_store_shortens_is_counted(tmp_path: Path, tasks: Tasks) -> None:
    """The limit counts characters: `ä` has two bytes."""
    store = tmp_path / "new.duckdb"
    file = tasks({"id": "whole", "times": 20_000}, {"id": "cut", "times": 20_001})
    words = ["sh", "-c", 'printf "ä%.0s" $(seq "$0")', "{times}"]
    report = run_agent(store, Job(file, words, stdin="none"), Grading(by_exit_code=True))
    assert report.shortened == 1
    outputs = {row["task_id"]: row["output"] for row in ask(store, "FROM attempts")}
    assert outputs == dict.fromkeys(("whole", "cut"), "ä" * 20_000)


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


def running_command(store: Path, tasks: Path) -> list[str]:
    """Return the command of a run, up to the option whose value is its name."""
    words = [sys.executable, "-m", "otel_lightning.learner", "run", "--store", str(store)]
    return [*words, "--tasks", str(tasks), "--exit-code-is-reward", "--name"]


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
            assert other.wait(60) == 0
        assert first.wait(60) == 0
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
            assert first.wait(60) == 0
    assert "Traceback" not in said.read_text()


def test_ingester_of_a_run_has_ended_before_another_run_may_look_for_one(tmp_path: Path) -> None:
    store = tmp_path / "new.duckdb"
    with Processes() as processes:
        with receiving(store, processes, tmp_path):
            assert read_server(store) is not None
        assert processes.service_ended(INGESTER)
        assert read_server(store) is None


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
        assert first.wait(60) == 1
    store.with_name("new.duckdb.runs").rename(tmp_path / "gone")
    go.touch()
    job = Job(file, agent, name="cut", retries=0, stdin="none")
    assert run_agent(store, job, Grading(by_exit_code=True)).statuses == {"ok": 1}


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
    done = finish(*words, "--", *agent("print(1)"))
    assert done.returncode == 0, done.stderr
    assert "ok 1, failed 0, timed out 0, lost 0" in done.stdout
    assert "Mean reward 1.0000" in done.stdout
    assert not store.with_name("new.duckdb.server").exists()
    assert [row["status"] for row in ask(store, "FROM attempts")] == ["ok"]


def test_arms_run_on_the_same_tasks_and_seeds_and_are_compared(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    flags = tmp_path / "flags.json"
    flag = {
        "state": "ENABLED",
        "variants": {"short": "Be short.", "long": "Be long.", "old": "Be."},
        "defaultVariant": "old",
        "targeting": {"fractional": [["short", 1], ["old", 99]]},
    }
    flags.write_text(json.dumps({"flags": {"prompt": flag, "other": flag}}))
    file = tasks(*({"id": str(i), "question": i} for i in range(12)))
    command = agent(
        "flag = json.load(open(os.environ['FLAGD_OFFLINE_FLAG_SOURCE_PATH']))['flags']['prompt']\n"
        "arm = flag['defaultVariant']\n"
        "assert 'targeting' not in flag\n"
        "assert flag['metadata']['lightning.propensity.' + arm] == 0.5\n"
        "sys.exit(arm == 'long' and int(task['id']) < 10)"
    )
    job = Job(file, command, name="arms", arms=Arms("prompt", flags, ["long", "short"]), jobs=2)
    report = run_agent(served, job, Grading(by_exit_code=True))
    rows = ask(served, "SELECT task_id, arm, seed, status FROM attempts WHERE run_id = 'arms'")
    assert len(rows) == 24
    assert len({(row["task_id"], row["seed"]) for row in rows}) == 12
    (compared,) = report.compare()
    assert (compared.base, compared.other, compared.pairs) == ("long", "short", 12)
    assert compared.gain == pytest.approx(10 / 12)
    assert compared.p_value == pytest.approx(2**-10)
    assert compared.passed
    assert json.loads(flags.read_text())["flags"]["prompt"] == flag
    wrong = Job(file, command, name="none", arms=Arms("prompt", flags, ["long", "longer"]))
    with pytest.raises(
        DataError, match=r"no variant 'longer' of 'prompt'\. Known: short, long, old"
    ):
        run_agent(served, wrong)


REWARDED = """
import socket
def send(name, value, at):
    said = {"gen_ai.evaluation.name": {"stringValue": name},
            "gen_ai.evaluation.score.value": {"doubleValue": value},
            "lightning.rollout.id": {"stringValue": os.environ["LIGHTNING_ROLLOUT_ID"]}}
    record = {"timeUnixNano": str(at), "eventName": "gen_ai.evaluation.result",
              "attributes": [{"key": key, "value": value} for key, value in said.items()]}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    host, port = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST /v1/logs HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n"
        head += f"Content-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
        connection.sendall(head.encode() + body)
        assert b" 200 " in connection.recv(4096)
if task["id"] != "silent":
    now = time.time_ns()
    send("success", 0.25, now)
    send("success", task["worth"], now + 1)  # the last judgement counts
    send("speed", 9.0, now + 2)
if task["id"] == "killed":
    os.kill(os.getpid(), 9)"""


def test_reward_event_that_the_agent_sends_is_the_outcome_of_its_rollout(
    served: Path, tasks: Tasks, agent: Agent
) -> None:
    names = {"good": 1.0, "bad": 0.0, "silent": 0.5, "killed": 1.0}
    file = tasks(*({"id": name, "worth": worth} for name, worth in names.items()))
    job = Job(file, agent(REWARDED), name="events", retries=0)
    report = run_agent(served, job, Grading(reward="success"))
    assert report.statuses == {"ok": 3, "lost": 1}
    rewards = {report.tasks[one]: value for one, value in report.rewards.items()}
    assert rewards == {"good": 1.0, "bad": 0.0}  # no reward is not 0, and the lost has none
    other = run_agent(served, job, Grading(reward="speed"))
    assert sorted(other.rewards.values()) == [9.0, 9.0]


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
        done = finish(*words, "--", *agent("print(1)"))
    finally:
        ingester.stop()
    assert done.returncode == 1
    assert "made no progress in 1 seconds" in done.stderr
    assert f"lightning-ingest check --store {path}" in done.stderr


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


def test_task_that_is_expected_to_give_another_answer_is_stored_though_nothing_runs(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    command = agent("print('new')")
    grading = Grading(
        rule=rule(tmp_path, RIGHT.replace("right", "mended")).replace("right", "mended")
    )
    means = []
    for expected in ("old", "new"):
        file = tasks({"id": "mended", "question": "x", "expected": expected})
        means.append(run_agent(served, Job(file, command, name="mended"), grading).mean)
    assert means == [0.0, 1.0]


def test_receiver_that_is_busy_for_longer_than_a_request_may_take_is_waited_for() -> None:
    """It answers 503 while deriving lags; the journal has the attempts meanwhile."""
    busy_until = time.monotonic() + 2

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(503 if time.monotonic() < busy_until else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    event = Event("lightning.task", 1, {}, {})
    with serving(HTTPServer(("127.0.0.1", 0), Busy)) as url:
        with pytest.raises(StoreError, match="503"):
            Receiver(url, {}, patience=0.1).send([event])
        Receiver(url, {}, patience=60).send([event])


@pytest.mark.parametrize(("reward", "told"), [("0.5", True), ("1", False)])
def test_run_of_arms_says_if_a_gate_would_ask_for_the_range_of_the_rewards(
    served: Path, tmp_path: Path, tasks: Tasks, reward: str, *, told: bool
) -> None:
    flags = tmp_path / "flags.json"
    flag = {"state": "ENABLED", "variants": {"a": "A", "b": "B"}, "defaultVariant": "a"}
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    words = ["run", "--store", str(served), "--tasks", str(tasks({"id": "a"}, {"id": "b"}))]
    words += ["--key", "prompt", "--flags", str(flags), "--arm", "a", "--arm", "b"]
    words += ["--grade-command", f"echo {reward}", "--name", f"ranged-{told}", "--", "true"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "on 2 pairs of 2 tasks: gain +0.0000" in result.stdout
    assert ("A gate would ask for --reward-range" in result.stdout) is told


def test_options_of_arms_have_no_effect_without_arms(tasks: Tasks, tmp_path: Path) -> None:
    for option, text in (("--key", "prompt"), ("--flags", str(tmp_path / "flags.json"))):
        words = ["run", "--tasks", str(tasks({"id": "a"})), option, text, "--", "true"]
        refused = CliRunner().invoke(cli, words)
        assert refused.exit_code == 2
        assert f"{option} has no effect without --arm" in refused.stderr
