"""Run an agent on tasks, traced into a store: model server, ingester, worker and journal."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import read_server
from otel_lightning.instrumentation import attributes
from otel_lightning.learner.rollout_runner.attempts import task_event
from otel_lightning.learner.rollout_runner.receiver import Event, Receiver
from otel_lightning.learner.rollout_runner.tasks import Task, tasks_of

BIN = Path(sys.executable).parent
WORKER = Path(__file__).with_name("worker.py")
READY_SECONDS = 180
AT_ONCE = 200


class StepFailedError(RuntimeError):
    """A program that the study needs did not start, or failed."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent's file, and the interpreter of the environment that has its framework."""

    path: Path
    python: Path


@dataclass(frozen=True, slots=True)
class Store:
    """A store with an ingester that serves it."""

    path: Path
    http: str
    token: str

    @property
    def receiver(self) -> Receiver:
        """Where log records are sent."""
        return Receiver(f"http://{self.http}", {"Authorization": f"Bearer {self.token}"})

    def derive(self) -> None:
        """Wait until all that was received is in the derived tables."""
        command("lightning-ingest", "derive", "--store", str(self.path))


@dataclass(frozen=True, slots=True)
class Work:
    """What to run."""

    name: str
    """Name of the run, and first part of the rollouts' ids."""
    tasks: Sequence[Task]
    samples: int
    """Rollouts of each task."""


def run(store: Store, agent: Agent, url: str, work: Work) -> None:
    """Run an agent on every task, and note tasks and attempts in the store.

    Args:
        store: Where traces go.
        agent: The agent.
        url: Base URL of the model.
        work: What to run.

    Raises:
        StepFailedError: If the agent fails in most rollouts.
    """
    name, tasks = work.name, work.tasks
    now = time.time_ns()
    for start in range(0, len(tasks), AT_ONCE):
        store.receiver.send([task_event(task, now) for task in tasks[start : start + AT_ONCE]])
    asked = [
        {
            "rollout_id": f"{name}-{task.task_id}-{sample}",
            "task_id": task.task_id,
            "sample": sample,
            "task": {"id": task.task_id, **task.fields},
        }
        for sample in range(work.samples)
        for task in tasks
    ]
    outcomes = _work(agent, asked, _variables(store, url, name))
    events = [_attempt(name, *both) for both in zip(asked, outcomes, strict=True)]
    for start in range(0, len(events), AT_ONCE):
        store.receiver.send(events[start : start + AT_ONCE])
    store.derive()


def _variables(store: Store, url: str, name: str) -> dict[str, str]:
    """Return all that an agent needs to find its model and to be traced."""
    return {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "none",
        "OPENAI_MODEL": "small",
        "LIGHTNING_REQUEST_TOKEN_IDS": "true",
        "OTEL_SERVICE_NAME": name,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{store.http}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer {store.token}",
    }


def _work(
    agent: Agent, asked: Sequence[Mapping[str, Any]], variables: Mapping[str, str]
) -> list[dict[str, Any]]:
    done = subprocess.run(
        [agent.python, WORKER, agent.path],
        input="".join(json.dumps(line) + "\n" for line in asked),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StepFailedError(f"The worker of {agent.path} failed:\n{done.stderr[-2000:]}")
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    errors = [outcome["error"] for outcome in outcomes if "error" in outcome]
    if len(errors) > len(outcomes) / 2:
        raise StepFailedError(f"{agent.path} failed in {len(errors)} rollouts: {errors[0]}")
    return outcomes


def _attempt(name: str, asked: Mapping[str, Any], outcome: Mapping[str, Any]) -> Event:
    body = {
        "run_id": name,
        "rollout_id": asked["rollout_id"],
        "task_id": asked["task_id"],
        "sample": asked["sample"],
        "attempt": 0,
        "status": "failed" if "error" in outcome else "ok",
        "exit_code": int("error" in outcome),
        "started": outcome["started"],
        "ended": outcome["ended"],
    }
    said = {
        attributes.ROLLOUT_ID: asked["rollout_id"],
        attributes.TASK_ID: asked["task_id"],
        "output": outcome.get("output", ""),
        "errors": outcome.get("error", ""),
    }
    return Event(attributes.ATTEMPT, outcome["ended"], body, said)


def as_tasks(lines: Sequence[Mapping[str, Any]], source: str) -> Sequence[Task]:
    """Make tasks of the lines of a task file."""
    return tasks_of(((f"{source}:{n}", line) for n, line in enumerate(lines, 1)), source).tasks


@contextmanager
def ingesting(path: Path) -> Iterator[Store]:
    """Run `lightning-ingest` for the block."""
    options = ("--store", str(path), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    with _background("lightning-ingest", *options) as process:
        told = path.with_name(f"{path.name}.server")
        _wait(process, told)
        server = read_server(path)
        if server is None:
            raise StepFailedError("lightning-ingest ended at once.")
        yield Store(path, str(server.http), server.token)


@contextmanager
def serving(model: Path, temperature: float, seed: int) -> Iterator[str]:
    """Serve a model for the block, as `lightning-learn serve` does; give its base URL."""
    import uvicorn

    from otel_lightning.learner.model_server.app import Serving, make_app
    from otel_lightning.learner.model_server.run import listen, load

    served = load(model, Serving(("small",), temperature, seed))
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(served), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(30)


def command(program: str, *words: str, allowed: Sequence[int] = (0,)) -> str:
    """Run one of our commands to its end, and return what it printed.

    Raises:
        StepFailedError: If its exit code is not allowed.
    """
    done = subprocess.run([BIN / program, *words], capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        raise StepFailedError(f"{program} {' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def _background(program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([BIN / program, *words], stdout=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _wait(process: subprocess.Popen[str], file: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise StepFailedError(f"{process.args!r} did not start; its message is above.")
        time.sleep(0.05)
