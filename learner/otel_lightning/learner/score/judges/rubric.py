"""Rubrics: the criterion and scale of a judge. The built-in ones are in `rubrics/`."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from otel_lightning.collector.terminal.text_input import read_text
from otel_lightning.learner.errors import DataError

MEASURES = ("intent_resolution", "task_adherence", "task_completion")
NAME = re.compile(r"[A-Za-z0-9_-]+")
NUMBER = r"(-?\d+(?:\.\d+)?)"
# Matches a whole line such as "Scale: 1 to 5, passes from 3"; the part about passing may be
# missing.
SCALE = re.compile(rf"^Scale: {NUMBER} to {NUMBER}(?:, passes from {NUMBER})?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rubric:
    """A criterion in words, and the scale of its scores."""

    name: str
    lowest: float
    highest: float
    instructions: str
    passes: float | None = None
    """Smallest score with the label `pass`; if it is None, scores have no label."""

    @property
    def scale(self) -> str:
        """The scale as text.

        Example:
            >>> Rubric("tone", 1, 5, "Is it polite?").scale
            '1 to 5'
        """
        return f"{self.lowest:g} to {self.highest:g}"


def measure(name: str) -> Rubric:
    """Read the built-in rubric of one of `MEASURES`."""
    file = resources.files(__package__) / "rubrics" / f"{name}.toml"
    return parse_toml(file.read_text(encoding="utf-8"), file.name)


def read_rubric(path: Path) -> Rubric:
    """Read a user's rubric.

    Args:
        path: A TOML file, or Markdown with a line such as `Scale: 1 to 5, passes from 3`.

    Raises:
        DataError: If the file has another format, or a required value is missing.
        OSError: If the file cannot be read, or is not UTF-8.
    """
    parsers = {".toml": parse_toml, ".md": parse_markdown}
    if path.suffix not in parsers:
        raise DataError(f"{path}: a rubric is a .toml or .md file. Rename it, or write one.")
    return parsers[path.suffix](read_text(path), str(path))


def parse_toml(text: str, source: str) -> Rubric:
    """Read a rubric from TOML: name, lowest, highest, instructions, and optionally passes.

    Raises:
        DataError: If the text is not TOML, or a value is missing or wrong.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{source}: not TOML ({error}). Correct the file.") from error
    allowed = {"name", "lowest", "highest", "instructions", "passes"}
    if unknown := sorted(values.keys() - allowed):
        raise DataError(
            f"{source}: unknown key '{unknown[0]}'. Known: {', '.join(sorted(allowed))}."
        )
    return _checked(values, source)


def parse_markdown(text: str, source: str) -> Rubric:
    """Read a rubric from Markdown; its name is the name of the file.

    Raises:
        DataError: If no line gives the scale, or the scale is wrong.
    """
    scale = SCALE.search(text)
    if scale is None:
        raise DataError(f"{source}: no scale. Add a line such as 'Scale: 1 to 5, passes from 3'.")
    lowest, highest, passes = (None if n is None else float(n) for n in scale.groups())
    values = {"name": Path(source).stem, "lowest": lowest, "highest": highest}
    instructions = text[: scale.start()] + text[scale.end() :]
    return _checked({**values, "instructions": instructions, "passes": passes}, source)


def _checked(values: Mapping[str, Any], source: str) -> Rubric:
    for key, kind in (("name", str), ("instructions", str), ("lowest", float), ("highest", float)):
        if not _is(values.get(key), kind):
            expected_kind = "a text" if kind is str else "a number"
            raise DataError(f"{source}: '{key}' must be {expected_kind}, not {values.get(key)!r}.")
    if not _is(values.get("passes", 0.0), float) and values["passes"] is not None:
        raise DataError(f"{source}: 'passes' must be a number, not {values['passes']!r}.")
    if not NAME.fullmatch(values["name"]):
        raise DataError(
            f"{source}: '{values['name']}' cannot name a score. Use letters, digits, '_', '-'."
        )
    if not values["lowest"] < values["highest"]:
        raise DataError(f"{source}: the scale must rise; 'lowest' is not below 'highest'.")
    if not values["instructions"].strip():
        raise DataError(f"{source}: no instructions. Say what the judge shall look at.")
    return Rubric(**{**values, "instructions": values["instructions"].strip()})


def _is(value: object, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str)
    # TOML's 1 is an int and is accepted for a number; `true` is an int to Python and is not.
    return isinstance(value, int | float) and not isinstance(value, bool)
