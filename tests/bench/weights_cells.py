"""What was measured, kept in a JSON file, so that an interrupted bench goes on."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "learner/otel_lightning/learner/weights",
    "learner/otel_lightning/learner/credit",
    "learner/otel_lightning/learner/evaluate",
    "learner/otel_lightning/learner/model_server",
    "tests/bench",
    "examples",
)
"""Code that decides what is measured."""


@dataclass(slots=True)
class Cell:
    """One model of one seed."""

    rewards: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """By the sampling and the task."""
    seconds: float = 0.0
    """CPU of its training, with its gate."""
    passed: bool | None = None
    """Whether the gate by logs let it pass; None for the base."""

    def mean(self, heat: str) -> float:
        """Mean reward over the rollouts of one sampling."""
        values = [value for rewards in self.rewards[heat].values() for value in rewards]
        return sum(values) / len(values)


class Cells:
    """The measurements in a file."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path, self._code = path, fingerprint(*SOURCES)
        self._found: dict[str, Any] = {}
        if path.exists() and not fresh:
            kept = json.loads(path.read_text(encoding="utf-8"))
            self._found = kept["cells"] if kept["code"] == self._code else {}

    def has(self, *key: object) -> bool:
        """Return whether a measurement is there."""
        return _name(key) in self._found

    def get(self, *key: object) -> Cell:
        """Return a measurement."""
        return Cell(**self._found[_name(key)])

    def add(self, *key_and_cell: Any) -> None:
        """Keep a measurement: its key, then the cell."""
        *key, cell = key_and_cell
        self._found[_name(key)] = asdict(cell)
        self._write()

    def lines(self, name: str, make: Callable[[], Iterator[str]]) -> list[str]:
        """Return the lines of a table, which is made if the file lacks it."""
        if name not in self._found:
            self._found[name] = list(make())
            self._write()
        return [str(line) for line in self._found[name]]

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps({"code": self._code, "cells": self._found}))
        partial.replace(self._path)


def fingerprint(*folders: str) -> str:
    """Hash the code below some folders of the repository."""
    found = sha256()
    for path in _files(folders):
        found.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _files(folders: Iterable[str]) -> list[Path]:
    kinds = (".py", ".sql", ".json", ".jinja")
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and path.is_file()
    )


def _name(key: Iterable[object]) -> str:
    return "/".join(map(str, key))
