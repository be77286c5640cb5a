"""Agents of a few lines, and their tasks."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Agent = Callable[[str], list[str]]


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
