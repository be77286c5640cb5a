"""Run an unchanged agent in its own environment, and write what really happened as a truth."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.frameworks import PLACE, Framework
from support.provider.server import Provider
from support.running import INSTALL_S, finish

ROOT = Path(__file__).parents[2]
TIMEOUT = 300
"""Seconds that an agent may take on a busy machine."""
CACHE = ROOT / ".cache" / "frameworks"
AGENTS = PLACE / "agents"


class Ran(NamedTuple):
    """What a run sent, and its truth."""

    truth: dict[str, Any]
    spans: bytes
    """All OTLP requests for traces, concatenated: protobuf reads them as one request."""
    logs: bytes


def pins_of(framework: Framework) -> Path:
    """Return the file that pins every package of a framework's environment."""
    if framework.javascript:
        return PLACE / "npm" / framework.folder / "package-lock.json"
    return PLACE / "requirements" / f"{framework.folder}.txt"


def command_of(framework: Framework) -> list[str]:
    """Return the command that runs the agent, in an environment that is made at first use."""
    if framework.javascript:
        return _node(framework)
    requirements = pins_of(framework)
    venv = CACHE / framework.folder
    python = venv / "bin" / "python"
    if _outdated(venv, requirements):
        shutil.rmtree(venv, ignore_errors=True)
        _do(sys.executable, "-m", "venv", str(venv))
        # All versions are pinned. Without the resolver, since AutoGen's and OpenTelemetry's
        # ranges of protobuf exclude each other.
        pip = (str(python), "-m", "pip", "install", "--quiet", "--no-deps")
        _do(*pip, "-r", str(requirements))
        _do(*pip, "-e", str(ROOT))
        _made(venv, requirements)
    return [str(python), str(AGENTS / f"{framework.script}.py")]


def _node(framework: Framework) -> list[str]:
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip(f"{framework.name} needs npm and node, which are not installed")
    lock = pins_of(framework)
    lock_folder = lock.parent
    folder = CACHE / f"npm-{framework.folder}"
    if _outdated(folder, lock):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(lock_folder, folder)
        _do("npm", "ci", "--no-audit", "--no-fund", "--prefix", str(folder))
        _made(folder, lock)
    for source in (lock_folder / "tracing.mjs", AGENTS / "tasks.json", *AGENTS.glob("*.mjs")):
        shutil.copy(source, folder)
    agent = folder / f"{framework.script}.mjs"
    return ["node", "--import", str(folder / "tracing.mjs"), str(agent)]


def _outdated(folder: Path, pins: Path) -> bool:
    stamp = folder / "made-of"
    return not stamp.exists() or stamp.read_text() != _digest(pins)


def _made(folder: Path, pins: Path) -> None:
    (folder / "made-of").write_text(_digest(pins))


def _digest(pins: Path) -> str:
    return hashlib.sha256(pins.read_bytes()).hexdigest()


def _do(*command: str) -> None:
    process = finish(*command, seconds=INSTALL_S)
    assert process.returncode == 0, f"{' '.join(command)}\n{process.stderr[-3000:]}"


QUIET = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "CREWAI_DISABLE_TELEMETRY": "true"}
"""Keeps frameworks from sending their own telemetry to their makers."""


def variables(provider: Provider, endpoint: str, folder: Path) -> dict[str, str]:
    """Return the variables that an agent runs with, apart from its framework's own."""
    return {
        **QUIET,
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(AGENTS),
        "TOOL_LOG": str(folder / "tools.jsonl"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",  # as port 4318, which tests cannot take
        "OTEL_BSP_SCHEDULE_DELAY": "1000",
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": provider.url,
    }


def start(
    framework: Framework, provider: Provider, sink: Any, folder: Path
) -> list[dict[str, Any]]:
    """Run the agent to its end; return what its tools logged."""
    own = {
        name: value.format(endpoint=sink.url, folder=folder)
        for name, value in framework.variables.items()
    }
    process = subprocess.run(
        command_of(framework),
        env=variables(provider, sink.url, folder) | own,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-5000:]
    log = folder / "tools.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def run(framework: Framework, provider: Provider, sink: Any, folder: Path) -> Ran:
    """Run the agent to its end; return what it sent and what happened."""
    tools = start(framework, provider, sink, folder)
    truth = {
        "schema": "otlp-capture-truth/1",
        "dialect": framework.recording,
        "scenario": "tasks",
        "framework": framework.name,
        "session_id": None,
        "notes": {},
        "llm_calls": provider.calls,
        "tool_executions": tools,
    }
    return Ran(truth, unplaced(sink.bodies), unplaced(sink.log_bodies))


def unplaced(bodies: list[bytes]) -> bytes:
    """Join requests, with the path of this checkout replaced by one of the same length."""
    path = str(ROOT).encode()
    return b"".join(bodies).replace(path, b"/" + b"a" * (len(path) - 1))


LARGEST = 64 << 10
"""Bytes of spans that `tests/data` takes in from one recording."""


def record(ran: Ran, folder: Path) -> Path:
    """Write a recording, in the form of `tests/data`; return the path of its truth."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tasks.otlp.pb").write_bytes(ran.spans)
    if ran.logs:
        (folder / "tasks.logs.pb").write_bytes(ran.logs)
    truth = folder / "tasks.truth.json"
    truth.write_text(json.dumps(ran.truth) + "\n")
    return truth
