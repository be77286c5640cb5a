"""Servers that fork their workers: each worker delivers its own spans, once, also at the end."""

import http.client
import importlib.util
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.running import INSTALL_S, LIMIT_S, background, eventually, finish

APP = """
import os
import openai

def app(environ, start_response):
    client = openai.OpenAI()
    task = environ["PATH_INFO"]
    client.chat.completions.create(model="small", messages=[{"role": "user", "content": task}])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""
LISTENING = re.compile(r"Listening at: http://[\d.]+:(\d+)")
TASKS = [f"/task/{number}" for number in range(12)]


@contextmanager
def gunicorn(agent: Any, *options: str, worker: str = "sync") -> Iterator[tuple[Any, int]]:
    """Run the application under gunicorn with two workers; lend its process and port."""
    (agent.folder / "desk.py").write_text(APP)
    log = agent.folder / "gunicorn.log"
    launcher = str(Path(sys.executable).parent / "opentelemetry-instrument")
    command = [launcher, sys.executable, "-m", "gunicorn", "--workers", "2"]
    command += ["--bind", "127.0.0.1:0", "--worker-class", worker, *options, "desk:app"]
    environment = agent.environment() | {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
    with (
        log.open("w") as output,
        background(*command, env=environment, cwd=agent.folder, stderr=output) as process,
    ):
        eventually(lambda: bool(LISTENING.search(log.read_text())))
        yield process, int(LISTENING.findall(log.read_text())[0])
        assert process.wait(LIMIT_S) == 0
    text = log.read_text()
    assert "Traceback" not in text, text
    assert "Lost" not in text, text


def ask(port: int, path: str) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("gunicorn"), reason="gunicorn is not installed")
@pytest.mark.parametrize(
    ("options", "worker"), [((), "sync"), (("--preload",), "sync"), (("--threads", "4"), "gthread")]
)
def test_each_worker_of_gunicorn_delivers_its_calls_once_when_the_server_ends(
    agent: Any, options: tuple[str, ...], worker: str
) -> None:
    with gunicorn(agent, *options, worker=worker) as (process, port):
        workers = {ask(port, task) for task in TASKS}
        assert not agent.sink.spans, "nothing is exported before the end"
        process.send_signal(signal.SIGTERM)
    assert workers
    spans = agent.sink.llm_spans()
    asked = sorted(re.findall(r"/task/\d+", repr([s.attributes for s in spans])))
    assert asked == sorted(TASKS)
    assert len({span.span_id for span in spans}) == len(TASKS)


CELERY = """
import os
import openai
from celery import Celery

folder = os.environ["QUEUE"]
app = Celery("desk", broker="filesystem://")
names = {"data_folder_in": "in", "data_folder_out": "in", "control_folder": "control"}
app.conf.broker_transport_options = {key: f"{folder}/{name}" for key, name in names.items()}

@app.task
def work(task):
    openai.OpenAI().chat.completions.create(
        model="small", messages=[{"role": "user", "content": task}]
    )
"""
SEND = "import desk, sys\nfor task in sys.argv[1:]: desk.work.delay(task)"
ROOT = Path(__file__).parents[2]


def environment_of_celery() -> Path:
    """Give the bin folder of an environment with Celery, whose dependencies exclude ours."""
    venv = ROOT / ".cache" / "frameworks" / "celery"
    if not (venv / "ok").exists():
        finish(sys.executable, "-m", "venv", venv, check=True)
        pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet"]
        if finish(*pip, "celery", "openai", "-e", ROOT, seconds=INSTALL_S).returncode:
            pytest.skip("Celery cannot be installed here")
        (venv / "ok").touch()
    return venv / "bin"


@pytest.mark.frameworks
def test_each_worker_of_celery_delivers_its_calls_once_when_it_ends(agent: Any) -> None:
    folder = environment_of_celery()
    (agent.folder / "desk.py").write_text(CELERY)
    (agent.folder / "in").mkdir()
    variables = agent.environment(folder) | {
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
        "QUEUE": str(agent.folder),
        "PYTHONPATH": str(agent.folder),
    }
    log = agent.folder / "celery.log"
    command = [str(folder / "celery"), "-A", "desk", "worker", "-c", "2", "-l", "INFO"]
    with (
        log.open("w") as output,
        background(
            *command, env=variables, cwd=agent.folder, stdout=output, stderr=output
        ) as process,
    ):
        eventually(lambda: " ready." in log.read_text())
        sender = [folder / "python", "-c", SEND, *TASKS]
        untraced = variables | {"LIGHTNING_INSTRUMENT": "false"}
        finish(*sender, env=untraced, cwd=agent.folder, check=True)
        eventually(lambda: log.read_text().count("succeeded in") == len(TASKS))
        assert not agent.sink.spans, "nothing is exported before the end"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    spans = agent.sink.llm_spans()
    asked = sorted(re.findall(r"/task/\d+", repr([s.attributes for s in spans])))
    assert asked == sorted(TASKS)
