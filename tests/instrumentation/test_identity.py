"""Rollout ids and arms across threads, asyncio, pools, child processes and HTTP."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import propagate
from support.examples import first_quick
from support.running import LIMIT_S, background

from otel_lightning.instrumentation import rollout
from otel_lightning.instrumentation.identity import current_ids

CALL = """
import asyncio, concurrent.futures, multiprocessing, sys, threading
import openai
from otel_lightning.instrumentation import rollout

def call(task):
    openai.OpenAI().chat.completions.create(
        model="small", messages=[{"role": "user", "content": task}]
    )
    return task

async def acall(task):
    async with openai.AsyncOpenAI() as client:
        await client.chat.completions.create(
            model="small", messages=[{"role": "user", "content": task}]
        )
"""
WAYS = {
    "thread": """
    thread = threading.Thread(target=call, args=(task,)); thread.start(); thread.join()""",
    "thread pool": """
    assert list(threads.map(call, [task])) == [task]""",
    "asyncio": """
    asyncio.run(acall(task))""",
    "executor of a loop": """
    asyncio.run(asyncio.to_thread(call, task))""",
    "child, forked": """
    child = multiprocessing.get_context("fork").Process(target=call, args=(task,))
    child.start(); child.join(); assert child.exitcode == 0""",
    "child, spawned": """
    child = multiprocessing.get_context("spawn").Process(target=call, args=(task,))
    child.start(); child.join(); assert child.exitcode == 0""",
    "process pool": """
    assert list(processes.map(call, [task])) == [task]""",
    "pool": """
    assert pool.map(call, [task]) == [task]; assert pool.apply(call, (task,)) == task""",
}


@pytest.mark.parametrize("way", first_quick(WAYS))
def test_a_rollout_reaches_what_is_started_in_it(agent: Any, way: str) -> None:
    pools = {
        "thread pool": "threads = concurrent.futures.ThreadPoolExecutor(1)",
        "process pool": "processes = concurrent.futures.ProcessPoolExecutor(1)",
        "pool": "pool = multiprocessing.get_context('fork').Pool(1)",
    }
    script = f"""{CALL}
if __name__ == "__main__":
  {pools.get(way, "pass")}
  for task in ("one", "two"):
   with rollout(task_id=task, rollout_id="run " + task):{WAYS[way]}
  if "pool" in globals():
    pool.close(); pool.join()
"""
    agent.run(script)
    spans = agent.sink.llm_spans()
    assert {span.attributes.get("lightning.rollout.id") for span in spans} == {"run one", "run two"}
    for span in spans:
        task = span.attributes["lightning.task.id"]
        assert span.attributes["lightning.rollout.id"] == f"run {task}"
        assert f'"{task}"' in span.attributes["gen_ai.input.messages"]


def test_a_rollout_reaches_another_service_in_the_headers_of_a_request() -> None:
    headers: dict[str, str] = {}
    with rollout(task_id="ticket 1", rollout_id="run-17"):
        propagate.inject(headers)
    assert current_ids() == {}
    received = current_ids(propagate.extract(headers))
    assert received == {"lightning.rollout.id": "run-17", "lightning.task.id": "ticket 1"}


SERVICE = """
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai
from opentelemetry import context, propagate

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        received = {name.lower(): value for name, value in self.headers.items()}
        token = context.attach(propagate.extract(received))  # as an HTTP instrumentation does
        openai.OpenAI().chat.completions.create(
            model="small", messages=[{"role": "user", "content": self.path}]
        )
        context.detach(token)
        self.send_response(204)
        self.end_headers()

server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.handle_request()
server.handle_request()
"""


@pytest.mark.slow
def test_a_rollout_reaches_the_model_calls_of_a_service_in_another_process(agent: Any) -> None:
    program = agent.folder / "service.py"
    program.write_text(SERVICE)
    launch = (str(Path(sys.executable).parent / "opentelemetry-instrument"), sys.executable)
    options = {"env": agent.environment(), "stdout": subprocess.PIPE, "text": True}
    with background(*launch, str(program), **options) as service:
        port = service.stdout.readline().strip()  # type: ignore[union-attr]
        agent.run(f"""
import urllib.request
from opentelemetry import propagate
from otel_lightning.instrumentation import rollout

for name in ("one", "two"):
    with rollout(task_id="task " + name, rollout_id="run " + name):
        request = urllib.request.Request("http://127.0.0.1:{port}/" + name)
        propagate.inject(request.headers)
        urllib.request.urlopen(request, timeout=60).read()
""")
        assert service.wait(LIMIT_S) == 0
    first, second = agent.sink.llm_spans()
    for span, name in ((first, "one"), (second, "two")):
        assert span.attributes["lightning.rollout.id"] == f"run {name}"
        assert span.attributes["lightning.task.id"] == f"task {name}"
        assert f"/{name}" in span.attributes["gen_ai.input.messages"]


def test_a_rollout_without_a_name_gets_one_of_its_own() -> None:
    with rollout() as first, rollout() as second:
        assert current_ids()["lightning.rollout.id"] == second
    assert first != second


@pytest.mark.slow
def test_an_arm_reaches_a_thread_that_is_started_while_it_is_in_force(agent: Any) -> None:
    script = """
import threading
import openai
from openfeature import api
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

flag = InMemoryFlag("brief", {"brief": "Be brief."})
api.set_provider_and_wait(InMemoryProvider({"prompt": flag}))
prompt = api.get_client().get_string_value("prompt", "Be.")
def call():
    openai.OpenAI().chat.completions.create(
        model="small", messages=[{"role": "system", "content": prompt}]
    )
thread = threading.Thread(target=call); thread.start(); thread.join()
"""
    agent.run(script)
    (span,) = agent.sink.llm_spans()
    (event,) = (e for e in span.events if e.name == "feature_flag.evaluation")
    assert event.attributes["feature_flag.result.variant"] == "brief"
