"""Rollout ids and arms across threads, asyncio, pools, child processes and HTTP."""

from typing import Any

import pytest
from opentelemetry import propagate

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


@pytest.mark.parametrize("way", WAYS)
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


def test_a_rollout_without_a_name_gets_one_of_its_own() -> None:
    with rollout() as first, rollout() as second:
        assert current_ids()["lightning.rollout.id"] == second
    assert first != second


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
