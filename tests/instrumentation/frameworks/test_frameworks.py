"""Unchanged agents in real frameworks: the tables equal what the model server and tools logged.

`make test-frameworks` runs these: each framework has an environment of its own in the cache.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import frameworks_page
from support.frameworks import FRAMEWORKS, Framework

from otel_lightning.collector.store import open_store

ROOT = Path(__file__).parents[3]
AGENTS = Path(__file__).parent / "agents"
CACHE = ROOT / ".cache" / "frameworks"


def python_of(framework: Framework) -> Path:
    """Give the interpreter of a framework's environment, made at first use."""
    venv = CACHE / framework.folder
    python = venv / "bin" / "python"
    if not (venv / "ok").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        # Two steps: AutoGen's and OpenTelemetry's ranges of protobuf exclude each other.
        ours = ["-e", str(ROOT), *framework.instrumentation]
        for wanted in (ours, framework.packages):
            pip = [str(python), "-m", "pip", "install", "--quiet", *wanted]
            if subprocess.run(pip, check=False).returncode:
                pytest.skip(f"{framework.name} cannot be installed here")
        (venv / "ok").touch()
    return python


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda f: f.name)
def test_the_tables_equal_what_the_model_server_and_the_tools_logged(
    framework: Framework, agent: Any, tmp_path: Path
) -> None:
    log = tmp_path / "tools.jsonl"
    base = agent.environment(python_of(framework).parent)
    done = subprocess.run(
        [str(python_of(framework)), str(AGENTS / f"{framework.script}.py")],
        env={**base, "TOOL_LOG": str(log), "PYTHONPATH": str(AGENTS), **framework.variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    store = tmp_path / "traces.duckdb"
    bodies = [tmp_path / f"{n}.pb" for n in range(len(agent.sink.bodies))]
    for path, body in zip(bodies, agent.sink.bodies, strict=True):
        path.write_bytes(body)
    load = [sys.executable, "-m", "otel_lightning.collector", "load", *map(str, bodies)]
    subprocess.run([*load, "--store", str(store)], check=True, capture_output=True)
    with open_store(store) as opened:
        calls = opened.query("SELECT count(*) AS n FROM llm_calls").to_pylist()[0]["n"]
        rollouts = opened.query("SELECT count(*) AS n FROM rollouts").to_pylist()[0]["n"]
        tools = opened.query("SELECT name, arguments, result FROM tool_calls").to_pylist()
    truth = [json.loads(line) for line in log.read_text().splitlines()]
    found = sorted((row["name"], json.loads(row["arguments"])["city"]) for row in tools)
    assert calls == len(agent.model_server.requests)
    assert found == sorted((one["name"], one["arguments"]["city"]) for one in truth)
    assert rollouts == 3


def test_the_page_of_packages_is_as_the_frameworks_that_are_tried() -> None:
    assert frameworks_page.PAGE.read_text() == frameworks_page.page(), (
        "write it again with: python tests/support/frameworks_page.py"
    )
