"""Agents that are there already: asked over HTTP, or workers that stay."""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from support.running import LIMIT_S, background, eventually, join, serving
from support.stores import ask

from otel_lightning.collector.store import read_server
from otel_lightning.learner import DataError
from otel_lightning.learner.cli import cli
from otel_lightning.learner.rollout_runner import Arms, Grading, Job, run_agent

Tasks = Callable[..., Path]
NAMES = ("good", "refuses", "breaks", "hangs")


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """An agent behind HTTP, and the headers that it received."""
    seen: list[dict[str, str]] = []
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append({"id": task["id"], **{k.lower(): v for k, v in self.headers.items()}})
            if task["id"] == "hangs":
                released.wait(LIMIT_S)
            self.send_response({"refuses": 422, "breaks": 503}.get(task["id"], 200))
            self.end_headers()
            self.wfile.write(task["question"].encode())

        def log_message(self, *_: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield f"{url}/run?x=1", seen
        released.set()


def test_server_is_told_the_rollout_in_headers_and_its_answers_have_four_statuses(
    served: Path, tasks: Tasks, server: tuple[str, list[dict[str, str]]]
) -> None:
    url, seen = server
    file = tasks(*({"id": name, "question": f"say {name}"} for name in NAMES))
    job = Job(file, url=url, name="url", timeout=6, retries=1, jobs=4)
    report = run_agent(served, job, Grading(by_exit_code=True))
    rows = ask(served, "FROM attempts WHERE run_id = 'url' ORDER BY task_id, attempt")
    assert [(row["task_id"], row["status"]) for row in rows] == [
        ("breaks", "lost"),
        ("breaks", "lost"),
        ("good", "ok"),
        ("hangs", "timeout"),
        ("refuses", "failed"),
    ]
    assert rows[0]["reason"].startswith("HTTP 503")
    assert rows[2]["output"] == "say good"
    assert len(report.rewards) == 2
    (good,) = (one for one in seen if one["id"] == "good")
    carried = dict(pair.split("=") for pair in good["baggage"].split(","))
    assert carried == {
        "lightning.rollout.id": rows[2]["rollout_id"],
        "lightning.task.id": "good",
    }
    assert good["traceparent"].startswith("00-")
    assert len({one["traceparent"] for one in seen}) == len(seen) == 5


def test_server_that_nobody_runs_gives_lost_rollouts_and_no_reward(
    served: Path, tasks: Tasks
) -> None:
    job = Job(tasks({"id": "a", "x": 1}), url="http://127.0.0.1:9/", name="nobody", retries=0)
    report = run_agent(served, job, Grading(by_exit_code=True))
    assert (report.statuses, report.rewards, report.missing) == ({"lost": 1}, {}, 1)
    with pytest.raises(DataError, match="'ftp://x' is no URL"):
        run_agent(served, Job(tasks({"id": "a", "x": 1}), url="ftp://x", name="ftp"))


@pytest.mark.parametrize("names", [("soon", "late"), ("late",)])
def test_calls_that_a_server_sends_after_its_answer_are_waited_for(
    served: Path, tasks: Tasks, names: tuple[str, ...]
) -> None:
    timers = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            carried = dict(pair.split("=") for pair in self.headers["baggage"].split(","))
            late = task["id"] == "late"
            timer = threading.Timer(2 if late else 0, send_call, [carried["lightning.rollout.id"]])
            timer.start()
            timers.append(timer)
            if not late:
                timer.join(LIMIT_S)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    def send_call(rollout: str) -> None:
        server = read_server(served)
        assert server is not None
        attributes = {"lightning.rollout.id": rollout, "gen_ai.operation.name": "chat"}
        named = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        now = str(time.time_ns())
        span = {"traceId": os.urandom(16).hex(), "spanId": os.urandom(8).hex(), "name": "chat m"}
        span |= {"startTimeUnixNano": now, "endTimeUnixNano": now, "attributes": named}
        body = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        head = {"Content-Type": "application/json"}
        address = f"http://{server.http}/v1/traces"
        with urlopen(Request(address, json.dumps(body).encode(), head), timeout=LIMIT_S) as answer:
            assert answer.status == 200

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        file = tasks(*({"id": name, "x": 1} for name in names))
        job = Job(file, url=f"{url}/", name=f"late-{len(names)}")
        report = run_agent(served, job, Grading(by_exit_code=True))
    assert report.silent == 0
    join(*timers)


WORKER = """
import json, os, subprocess, sys, time
print('ready, a line that is no answer', flush=True)
for line in sys.stdin:
    task = json.loads(line)
    open(FILE, 'a').write(f"{os.getpid()} {task['rollout_id']} {task['seed']}\\n")
    if task['id'] == 'hangs':
        print(subprocess.Popen(['sleep', '600']).pid, file=open(FILE + '.child', 'w'))
        time.sleep(600)
    if task['id'] == 'dies': os._exit(7)
    if task['id'] == 'refuses': answer = {'error': 'I cannot'}
    else: answer = {'output': task['question'] * 2}
    print(json.dumps(answer), flush=True)
"""


def test_worker_stays_for_many_rollouts_and_a_bad_one_is_replaced(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    log = tmp_path / "log"
    (tmp_path / "worker.py").write_text(WORKER.replace("FILE", repr(str(log))))
    names = ("a", "b", "dies", "c", "hangs", "d", "refuses")
    file = tasks(*({"id": name, "question": name} for name in names))
    worker = [sys.executable, "-I", "-S", str(tmp_path / "worker.py")]
    job = Job(file, serve=worker, name="worker", timeout=6, grace=0.5, retries=1, jobs=1)
    report = run_agent(served, job)
    assert report.statuses == {"ok": 4, "lost": 1, "timeout": 1, "failed": 1}
    rows = {row["task_id"]: row for row in ask(served, "FROM attempts WHERE run_id = 'worker'")}
    assert (rows["a"]["output"], rows["refuses"]["reason"]) == ("aa", "I cannot")
    assert rows["dies"]["reason"] == "the worker ended, code 7"
    lines = [line.split() for line in log.read_text().splitlines()]
    processes = Counter(line[0] for line in lines)
    assert len(processes) == 3  # a, b, dies; c, hangs; d, refuses and dies again
    assert len({line[1] for line in lines}) == len(lines) == 8
    child = int((tmp_path / "log.child").read_text())
    eventually(lambda: not is_alive(child))


WAITING = """
import json, os, sys, time
for line in sys.stdin:
    task = json.loads(line)
    open(LOG, 'a').write(f"begun {task['id']}\\n")
    while task['id'] == 'waits' and not os.path.exists(GO):
        time.sleep(0.01)
    open(LOG, 'a').write(f"ended {task['id']}\\n")
    print(json.dumps({'output': task['attempt']}), flush=True)
"""
LATE = """
import json, sys, time
time.sleep(0.5)
for line in sys.stdin:
    print(json.dumps({"output": len(json.loads(line)["question"])}), flush=True)
"""
RUNNER = """
import sys
from pathlib import Path
from otel_lightning.learner.rollout_runner import Job, run_agent
store, tasks, *worker = sys.argv[1:]
run_agent(store, Job(Path(tasks), serve=worker, name="answers", jobs=1, grace=60))
"""


def test_rollout_whose_answer_comes_after_the_runner_was_killed_is_not_run_again(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    program = WAITING.replace("LOG", repr(str(log))).replace("GO", repr(str(go)))
    (tmp_path / "worker.py").write_text(program)
    file = tasks({"id": "waits", "question": 1}, {"id": "next", "question": 2})
    worker = [sys.executable, "-I", "-S", str(tmp_path / "worker.py")]
    log.touch()
    with background(sys.executable, "-c", RUNNER, str(served), str(file), *worker):
        eventually(lambda: "begun waits" in log.read_text(), LIMIT_S)  # and here it is killed
    go.touch()
    report = run_agent(served, Job(file, serve=worker, name="answers", jobs=1))
    assert (report.statuses, report.done_before) == ({"ok": 2}, 1)
    ended = [line for line in log.read_text().splitlines() if line.startswith("ended")]
    assert ended == ["ended waits", "ended next"]
    rows = ask(served, "SELECT task_id, output FROM attempts WHERE run_id = 'answers'")
    assert {row["task_id"]: row["output"] for row in rows} == {"waits": "0", "next": "0"}
    assert len(rows) == 2


POSTER = RUNNER.replace("serve=worker", "url=worker[0]")


def test_rollouts_that_a_server_worked_on_when_the_runner_was_killed_are_told(
    served: Path, tasks: Tasks, server: tuple[str, list[dict[str, str]]]
) -> None:
    url, seen = server
    file = tasks({"id": "good", "question": "1"}, {"id": "hangs", "question": "2"})
    with background(sys.executable, "-c", POSTER, str(served), str(file), url):
        eventually(lambda: "hangs" in {one["id"] for one in seen}, LIMIT_S)  # and here it is killed
    options = ["--name", "answers", "--url", url, "--timeout", "1", "--exit-code-is-reward"]
    place = ["--store", str(served), "--tasks", str(file)]
    result = CliRunner().invoke(cli, ["run", *place, *options])
    assert Counter(one["id"] for one in seen) == {"good": 1, "hangs": 2}
    assert "1 attempt of these was with the server of --url" in result.stderr
    assert "it may have done the work twice" in result.stderr


def test_dev_needs_the_receiver_of_a_server_and_looks_there(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    file = tasks(*({"id": name, "question": name} for name in "xyz"))
    words = ["run", "--dev", "--tasks", str(file), "--exit-code-is-reward"]
    with flagged(served, tmp_path, "true") as job:
        alone = CliRunner().invoke(cli, [*words, "--url", str(job.url), "--store", "other.duckdb"])
        result = CliRunner().invoke(cli, [*words, "--url", str(job.url), "--store", str(served)])
    assert "lightning-ingest serve --store other.duckdb" in alone.stderr
    assert "ok     trace: " in result.output
    assert "BROKEN model calls: 2 of 2 rollouts without one." in result.output
    assert "were written by: " in result.output


def test_worker_that_cannot_be_started_ends_the_run_with_its_reason(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    file = tasks(*({"id": str(number), "question": 1} for number in range(30)))
    job = Job(file, serve=[str(tmp_path / "nothing")], name="no-worker")
    with pytest.raises(DataError, match=r"cannot be started: .*nothing.* --serve"):
        run_agent(served, job)


def test_task_that_does_not_fit_into_a_pipe_reaches_a_worker_that_reads_late(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    (tmp_path / "worker.py").write_text(LATE)
    file = tasks({"id": "long", "question": "x" * 2_000_000}, {"id": "short", "question": "y"})
    worker = [sys.executable, "-I", "-S", str(tmp_path / "worker.py")]
    assert run_agent(served, Job(file, serve=worker, name="long", jobs=1)).statuses == {"ok": 2}
    rows = ask(served, "SELECT task_id, output FROM attempts WHERE run_id = 'long'")
    assert {row["task_id"]: row["output"] for row in rows} == {"long": "2000000", "short": "1"}


ARMED = """
import json, os, sys
document = json.load(open(os.environ["FLAGD_OFFLINE_FLAG_SOURCE_PATH"]))
served = document["flags"]["prompt"]["defaultVariant"]
for line in sys.stdin:
    task = json.loads(line)
    print(json.dumps({"output": f"{served} {task['arm']} {os.getpid()}"}), flush=True)
"""


def two_arms(folder: Path) -> Arms:
    flag = {"state": "ENABLED", "defaultVariant": "a", "variants": {"a": "A", "b": "B"}}
    flags = folder / "flags.json"
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    return Arms("prompt", flags, ["a", "b"])


def test_each_arm_has_workers_of_its_own_that_read_its_flag_file(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    (tmp_path / "worker.py").write_text(ARMED)
    worker = [sys.executable, "-I", "-S", str(tmp_path / "worker.py")]
    file = tasks(*({"id": name, "question": name} for name in "xyz"))
    arms = two_arms(tmp_path)
    job = Job(file, serve=worker, name="worker-arms", jobs=1, arms=arms)
    report = run_agent(served, job)
    assert report.statuses == {"ok": 6}
    rows = ask(served, "SELECT arm, output FROM attempts WHERE run_id = 'worker-arms'")
    said = {(row["arm"], *row["output"].split()) for row in rows}
    assert sorted(one[:2] for one in said) == [("a", "a"), ("b", "b")]
    assert all(served == named for served, named, _ in {one[1:] for one in said})
    assert len({pid for *_, pid in said}) == 2  # one worker for each arm, which stayed


TOGETHER = """
import glob, json, os, sys, time
open(f"{FOLDER}/started-{os.getpid()}", "w")
while len(glob.glob(f"{FOLDER}/started-*")) < 2:
    time.sleep(0.01)
for line in sys.stdin:
    print(json.dumps({"output": "done"}), flush=True)
"""


def test_workers_of_all_arms_start_at_the_same_time(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    # Each waits until the other has started, so the first answer needs both.
    (tmp_path / "worker.py").write_text(f"FOLDER = {str(tmp_path)!r}{TOGETHER}")
    worker = [sys.executable, "-I", "-S", str(tmp_path / "worker.py")]
    arms = two_arms(tmp_path)
    job = Job(
        tasks({"id": "x", "q": 1}), serve=worker, name="both", jobs=1, arms=arms, timeout=LIMIT_S
    )
    assert run_agent(served, job).statuses == {"ok": 2}


FLAGGED = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from openfeature import api
from opentelemetry import context, propagate, trace
from otel_lightning.instrumentation.provider import LightningProvider

api.set_provider(LightningProvider(sys.argv[1]))
client, pool = api.get_client(), ThreadPoolExecutor(2)

def answer():
    with trace.get_tracer("agent").start_as_current_span("agent"):
        return client.get_string_value("prompt", "none") if sys.argv[2] != "unasked" else "none"

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        # What OpenTelemetry's instrumentations of web frameworks do around each request.
        token = context.attach(propagate.extract(dict(self.headers)))
        said = pool.submit(answer).result()
        context.detach(token)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said.encode())
    def log_message(self, *_): pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def flagged(served: Path, folder: Path, accepts: str, way: str = "asked") -> Iterator[Job]:
    """A job with two arms for a server that evaluates a flag, in the variants of its own file."""
    server = read_server(served)
    assert server is not None
    flag = {"state": "ENABLED", "defaultVariant": "old", "variants": {"old": "Old.", "new": "New."}}
    flags, program = folder / "flags.json", folder / "server.py"
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    program.write_text(FLAGGED)
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{server.http}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "LIGHTNING_ACCEPT_ARMS": accepts,
    }
    launcher = Path(sys.executable).with_name("opentelemetry-instrument")
    command = [launcher, sys.executable, program, flags, way]
    with background(*command, env={**os.environ, **variables}, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        yield Job((), url=url, samples=2, arms=Arms("prompt", flags, ["old", "new"]))


def test_server_serves_the_arm_that_each_request_asks_for(
    served: Path, tmp_path: Path, tasks: Tasks
) -> None:
    file = tasks(*({"id": name, "question": name} for name in "xyz"))
    with flagged(served, tmp_path, "true") as job:
        report = run_agent(served, replace(job, tasks=file, name="url-arms"))
    assert report.statuses == {"ok": 12}
    rows = ask(
        served,
        "SELECT t.arm AS asked, a.arm, output, propensity, policy_version FROM attempts AS t"
        " JOIN arms AS a USING (rollout_id) WHERE run_id = 'url-arms'",
    )
    assert len(rows) == 12
    assert {tuple(row.values()) for row in rows} == {
        ("old", "old", "Old.", 0.5, "run-url-arms"),
        ("new", "new", "New.", 0.5, "run-url-arms"),
    }


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("asked", r"'new' of 'prompt' was asked for in rollout '.*', and its trace has 'old'"),
        ("unasked", "no trace of this run has an evaluation of the flag 'prompt'"),
    ],
)
def test_run_ends_with_a_sentence_if_the_server_serves_other_arms(
    served: Path, tmp_path: Path, tasks: Tasks, way: str, said: str
) -> None:
    file = tasks({"id": "x", "question": "x"})
    with flagged(served, tmp_path, "true" if way == "unasked" else "", way) as asked:
        job = replace(asked, tasks=file, name=f"url-{way}")
        with pytest.raises(DataError, match=rf"{said}.*LIGHTNING_ACCEPT_ARMS=true"):
            run_agent(served, job, Grading(by_exit_code=True))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
