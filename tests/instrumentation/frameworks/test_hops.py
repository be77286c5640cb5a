"""A rollout reaches the service that an agent calls, by OpenTelemetry's own instrumentations.

Both programs are unchanged and traced by variables alone; the service answers from its own process.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.agent_trials import AGENTS, command_of
from support.frameworks import Framework
from support.running import LIMIT_S, background, finish

HTTP = Framework("HTTP", "hop_agent", "http")


@pytest.mark.frameworks
def test_the_rollout_of_an_agent_is_on_the_model_calls_of_a_service(agent: Any) -> None:
    python, script = command_of(HTTP)
    launcher = str(Path(python).parent / "opentelemetry-instrument")
    environment = agent.environment(Path(python).parent)
    service = (launcher, python, str(AGENTS / "hop_service.py"))
    with background(
        *service, env=environment, stdout=subprocess.PIPE, text=True, cwd=agent.folder
    ) as running:
        assert running.stdout
        port = running.stdout.readline().strip()
        url = f"http://127.0.0.1:{port}/ask"
        finish(launcher, python, script, url, env=environment, cwd=agent.folder, check=True)
        running.terminate()  # it delivers what it has first
        running.wait(LIMIT_S)
    found = {
        span.attributes["gen_ai.input.messages"].split('"by ')[1].split('"')[0]: (
            span.attributes["lightning.rollout.id"],
            span.attributes["lightning.task.id"],
            span.trace_id in {other.trace_id for other in agent.sink.spans if other is not span},
        )
        for span in agent.sink.llm_spans()
    }
    assert found == {
        "requests": ("run-1", "task-1", True),
        "httpx": ("run-1", "task-1", True),
        "asyncio": ("run-2", "task-2", True),
    }
