"""The support desk's scripts, as modules to import and as processes to run."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.once import once
from support.running import LIMIT_S, background, join, written_by

if TYPE_CHECKING:
    from openai import OpenAI

DESK = Path(__file__).parents[2] / "examples" / "support_desk"
sys.path.insert(0, str(DESK))


@dataclass(frozen=True)
class Server:
    """A running model server, and a client of it."""

    client: "OpenAI"
    url: str
    name: str

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "none"}


class Desk:
    """The scripts of the example, run as its readers run them."""

    def start(
        self, script: str, *arguments: object, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, DESK / script, *map(str, arguments)],
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def run(self, script: str, *arguments: object, **environment: str) -> str:
        finished = self.start(script, *arguments, **environment)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    @contextlib.contextmanager
    def serve_here(self, model: Path, **options: Any) -> Iterator[Server]:
        """Serve in a thread of this process, which has loaded torch already."""
        import uvicorn

        from otel_lightning.learner.model_server import run
        from otel_lightning.learner.model_server.app import Serving, make_app

        app = make_app(run.load(model, Serving((model.name,), **options)))
        listener = run.listen("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        with listener, client_of(url) as client:
            try:
                yield Server(client, url, model.name)
            finally:
                server.should_exit = True
                join(thread)

    @contextlib.contextmanager
    def serve(self, model: Path, *more: str) -> Iterator[Server]:
        port_file = Path(tempfile.mkdtemp()) / "port"
        serve = (sys.executable, "-m", "otel_lightning.learner", "serve")
        options = ("--model", str(model), "--port", "0", "--port-file", str(port_file))
        with background(*serve, *options, *more) as process:
            url = f"http://127.0.0.1:{written_by(process, port_file)}/v1"
            with client_of(url) as client:
                yield Server(client, url, model.name)
            process.terminate()
            process.wait(LIMIT_S)


def client_of(url: str) -> "OpenAI":
    from openai import OpenAI  # slow to import, and not needed to collect tests

    return OpenAI(base_url=url, api_key="none", max_retries=0, timeout=LIMIT_S)


@pytest.fixture(scope="session")
def desk() -> Desk:
    return Desk()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the trained model as slow: training takes 20 CPU-seconds."""
    for item in items:
        if "beginner" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def beginner(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained for a few steps: it knows how a tool call looks, and little else."""

    def train(folder: Path) -> None:
        desk.run("model.py", "--output", folder, "--steps", 130)

    return once(tmp_path_factory, "beginner", train)


@pytest.fixture(scope="session")
def server(desk: Desk, beginner: Path) -> Iterator[Server]:
    with desk.serve(beginner) as server:
        yield server
