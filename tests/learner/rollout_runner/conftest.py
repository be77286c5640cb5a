"""A served store that the tests of a process share, and agents of a few lines."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import running

Agent = Callable[[str], list[str]]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of a store that a running ingester serves."""
    ingester = running.start(tmp_path_factory.mktemp("served") / "traces.duckdb")
    yield ingester.store
    ingester.stop()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    """Write an agent, which finds its task as `task`; return its command."""

    def write(body: str) -> list[str]:
        file = tmp_path / "agent.py"
        file.write_text(f"import json, os, sys, time\ntask = json.load(sys.stdin)\n{body}\n")
        return [sys.executable, "-I", "-S", str(file)]

    return write


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of tasks."""

    def write(*rows: dict[str, Any]) -> Path:
        file = tmp_path / "tasks.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    return write
