"""A rule as a user names it: `FILE.py:FUNCTION`, `FILE.sql` or `FILE.toml`."""

import re
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from otel_lightning.collector.files.reason import reason
from otel_lightning.learner.errors import DataError, MissingFileError
from otel_lightning.learner.score.rewards import RULE

SUFFIXES = (".py", ".sql", ".toml")
NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: the path and text of its file, and the name of the rewards that it gives."""

    path: Path
    text: str
    name: str
    function: str | None = None

    @property
    def spec(self) -> str:
        """The rule as the user named it."""
        return f"{self.path}:{self.function}" if self.function else str(self.path)

    @property
    def prefix(self) -> str:
        """Prefix of the source of its scores."""
        return f"{RULE}{self.name}"

    @property
    def source(self) -> str:
        """Source of its scores: the prefix and a fingerprint of the rule."""
        # The text and not the path: the same rule in another folder is the same rule.
        content = "\x1f".join((self.path.suffix, self.function or "", self.text))
        return f"{self.prefix}@{sha256(content.encode()).hexdigest()[:12]}"


def is_spec(text: str | None) -> bool:
    """Return whether a text names a rule, and not existing rewards.

    Example:
        >>> is_spec("rewards.py:grade"), is_spec("grade.sql"), is_spec("task_success")
        (True, True, False)
    """
    return text is not None and _split(text)[0].endswith(SUFFIXES)


def read_rule(spec: str) -> Rule:
    """Read the file of a rule.

    Raises:
        DataError: If the file cannot be read, no function is named, or the name is not allowed.
    """
    file, function = _split(spec)
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        kind = MissingFileError if isinstance(error, FileNotFoundError) else DataError
        raise kind(
            f"The rule '{file}' cannot be read ({reason(error)}). Write a rule as "
            "FILE.py:FUNCTION, FILE.sql or FILE.toml."
        ) from error
    if path.suffix == ".py" and not function:
        raise DataError(f"'{spec}' names no function. Write {spec}:FUNCTION.")
    name = function or (_parse(path, text).get("name") if path.suffix == ".toml" else None)
    return Rule(path, text, _checked(path.stem if name is None else name, spec), function)


def name_of(reward: str | None) -> str | None:
    """Name the rewards that a recorded `--reward` chose: those of a rule have the rule's name.

    Example:
        >>> name_of("rewards.py:grade"), name_of("grade.sql"), name_of("solved")
        ('grade', 'grade', 'solved')
    """
    if reward is None or not is_spec(reward):
        return reward
    try:
        return read_rule(reward).name
    except DataError:  # the file may be gone: then only a name within a TOML file is unknown
        file, function = _split(reward)
        return function or Path(file).stem


def read_toml(rule: Rule) -> dict[str, Any]:
    """Read the settings of a rule written in TOML."""
    return _parse(rule.path, rule.text)


def _split(spec: str) -> tuple[str, str | None]:
    # The last colon, since paths on Windows have one after the drive.
    file, colon, function = spec.rpartition(":")
    return (file, function) if colon and file.endswith(".py") else (spec, None)


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not TOML: {error}.") from error


def _checked(name: object, spec: str) -> str:
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    raise DataError(
        f"The rule '{spec}' would give rewards named '{name}'. A name has letters, digits, '_' "
        "and '-' only: rename the file, or set `name` in a TOML file."
    )
