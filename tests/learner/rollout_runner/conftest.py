"""Agents of a few lines, and their tasks."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_lightning.learner.rollout_runner.ingester import idle_ingester

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
def only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only a connection start an idle ingester, and no time: agents may be slow here."""
    monkeypatch.setattr(idle_ingester, "WITHIN_SECONDS", 600.0)
    monkeypatch.setattr(idle_ingester, "QUICK_SECONDS", 600.0)


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of tasks."""

    def write(*rows: dict[str, Any]) -> Path:
        file = tmp_path / "tasks.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    return write
