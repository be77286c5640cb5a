"""Around `lightning-learn run` in a study: an ingester, a model server, an agent's process."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import read_server
from otel_lightning.learner.rollout_runner.tasks import Task, tasks_of

BIN = Path(sys.executable).parent
WORKER = Path(__file__).with_name("worker.py")
READY_SECONDS = 180


class StepFailedError(RuntimeError):
    """A program that the study needs did not start, or failed."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent's file, and the interpreter of the environment that has its framework."""

    path: Path
    python: Path

    @property
    def worker(self) -> list[str]:
        """The command that runs it in a process that stays."""
        return [str(self.python), str(WORKER), str(self.path)]


class Models:
    """A model server in this process whose model can be exchanged; its port stays."""

    def __init__(self) -> None:
        """Open a free port; nothing is served yet."""
        # Imported here, because it loads torch, which other users of this module do without.
        import uvicorn

        from otel_lightning.learner.model_server.run import listen

        self._app: Any = None
        listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        config = uvicorn.Config(
            self._forward, interface="asgi3", lifespan="off", log_level="warning"
        )
        self._server = uvicorn.Server(config)
        run = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        run.start()
        self._thread = run

    def serve(self, model: Path, temperature: float, seed: int) -> None:
        """Serve a model from now on, as `lightning-learn serve` does."""
        from otel_lightning.learner.model_server.app import Serving, make_app
        from otel_lightning.learner.model_server.run import load

        self._app = make_app(load(model, Serving(("small",), temperature, seed)))

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(30)

    async def _forward(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


def model_variables(url: str) -> dict[str, str]:
    """Return the variables by which an agent finds its model, and records token ids."""
    return {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "none",
        "OPENAI_MODEL": "small",
        "LIGHTNING_REQUEST_TOKEN_IDS": "true",
    }


@contextmanager
def agent_server(agent: Agent, store: Path, model_url: str) -> Iterator[str]:
    """Run an agent behind HTTP for the block, traced into a store; give its URL."""
    server = read_server(store)
    if server is None:
        raise StepFailedError(f"No lightning-ingest serves '{store}'.")
    variables = model_variables(model_url) | {
        "OTEL_SERVICE_NAME": agent.path.parent.name,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{server.http}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        # A rollout is graded when it ends, so its spans must arrive soon.
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    port_file = store.with_name("agent.port")
    port_file.unlink(missing_ok=True)
    with background([*agent.worker, "--port-file", str(port_file)], variables) as process:
        wait_for(process, port_file)
        yield f"http://127.0.0.1:{port_file.read_text()}/"


def as_tasks(lines: Sequence[Mapping[str, Any]], source: str) -> Sequence[Task]:
    """Make tasks of the lines of a task file."""
    return tasks_of(((f"{source}:{n}", line) for n, line in enumerate(lines, 1)), source).tasks


@contextmanager
def ingesting(store: Path) -> Iterator[None]:
    """Run `lightning-ingest` for the block."""
    with starting_ingester(store) as wait:
        wait()
        yield


@contextmanager
def starting_ingester(store: Path) -> Iterator[Callable[[], None]]:
    """Start `lightning-ingest` for the block; yield a function that waits until it receives."""
    options = ("--store", str(store), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    with background([str(BIN / "lightning-ingest"), *options]) as process:
        yield partial(wait_for, process, store.with_name(f"{store.name}.server"))


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def background(
    command: Sequence[str], variables: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program for the block."""
    environment = {**os.environ, **(variables or {})}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


def wait_for(process: "subprocess.Popen[bytes]", file: Path) -> None:
    """Wait until a program has written a file.

    Raises:
        StepFailedError: If it ends before, or takes too long.
    """
    deadline = time.monotonic() + READY_SECONDS
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise StepFailedError(f"{process.args!r} did not start; its message is above.")
        time.sleep(0.05)
