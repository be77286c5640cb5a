"""Read the settings of a loop from its file `loop.toml`, and refuse those that cannot be right."""

import dataclasses
import math
import shlex
import tomllib
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from otel_lightning.learner.errors import DataError, MissingFileError
from otel_lightning.learner.evaluate.reward_range import check_failed_reward
from otel_lightning.learner.loop.config import KINDS, Config
from otel_lightning.learner.loop.ranges import outside


def read_config(path: Path) -> Config:
    """Read a loop's file.

    Raises:
        DataError: If the file is no TOML, or a setting is unknown, missing or of the wrong kind.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingFileError(
            f"There is no file '{path}'. Write the loop's settings into it."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"'{path}' is not TOML: {error}.") from error
    config: Config = _part(Config, {"name": path.stem, **tables}, str(path), "")
    _check(config, path)
    _check_commands(config, path)
    return config


def _check(config: Config, path: Path) -> None:
    """Refuse settings that do not fit each other, or that no command would take."""
    _check_kinds(config, path)
    if not config.name or not all(c.isalnum() or c in "-_." for c in config.name):
        raise DataError(
            f"{path}: the name '{config.name}' may have letters, digits, - _ and . only."
        )
    if config.prompts and config.policy:
        prompts, policy = config.prompts, config.policy
        if (prompts.key, prompts.flags) != (policy.key, policy.flags):
            raise DataError(f"{path}: [prompts] and [policy] must name the same key and flags.")
    ways = [bool(config.run.command), bool(config.run.url), bool(config.run.serve)]
    if sum(ways) != 1:
        raise DataError(f"{path}: [run] needs one of command, url and serve.")
    for problem in outside(config):
        raise DataError(f"{path}: {problem}.")
    if config.gate.reward_range and not _is_range(config.gate.reward_range):
        raise DataError(f"{path}: [gate] reward_range must be two finite numbers, the least first.")
    names = ("[run] failed_reward", "[gate] reward_range")
    check_failed_reward(config.run.failed_reward, config.gate.range, names)


def _check_kinds(config: Config, path: Path) -> None:
    """Refuse to learn something that is unknown, or whose part is missing."""
    kinds = config.learn.what
    for kind in kinds:
        if kind not in KINDS:
            raise DataError(f"{path}: [learn] what has '{kind}'. Known: {', '.join(KINDS)}.")
        if getattr(config, kind) is None:
            raise DataError(f"{path}: [learn] what has '{kind}', but there is no part [{kind}].")
    if not kinds:
        raise DataError(f"{path}: [learn] what is empty. Choose from: {', '.join(KINDS)}.")


def _is_range(numbers: tuple[float, ...]) -> bool:
    return (
        len(numbers) == 2  # noqa: PLR2004 - the least and the greatest
        and numbers[0] < numbers[1]
        and math.isfinite(numbers[1] - numbers[0])
    )


def _check_commands(config: Config, path: Path) -> None:
    """Refuse a command that would fail only when its round needs it."""
    commands = {
        "[weights] serve": config.weights.serve if config.weights else None,
        "[hooks] after_round": config.hooks.after_round,
        "[hooks] after_loop": config.hooks.after_loop,
    }
    for name, command in commands.items():
        try:
            shlex.split(command or "")
        except ValueError as error:
            raise DataError(f"{path}: {name} cannot be split into words: {error}.") from error


def _part(kind: Any, values: dict[str, Any], path: str, section: str) -> Any:
    """Make a part of a table, and check the names and kinds of its settings."""
    hints, fields = get_type_hints(kind), {f.name: f for f in dataclasses.fields(kind)}
    section_name = f"[{section}]" if section else "the file"
    for name in values:
        if name not in fields:
            near = get_close_matches(name, fields, 1)
            hint = f" Did you mean '{near[0]}'?" if near else f" It has: {', '.join(fields)}."
            raise DataError(f"{path}: {section_name} has the unknown setting '{name}'.{hint}")
    missing = dataclasses.MISSING
    for name, setting in fields.items():
        is_needed = setting.default is missing and setting.default_factory is missing
        if is_needed and name not in values:
            raise DataError(f"{path}: {section_name} lacks '{name}'.")
    prefix = f"{section}." if section else ""
    settings = {
        name: _value(hints[name], value, path, f"{prefix}{name}") for name, value in values.items()
    }
    return kind(**settings)


def _value(hint: Any, value: Any, path: str, section: str) -> Any:
    """Return a setting in the type that its part declares.

    Raises:
        DataError: If it is of another kind.
    """
    # `X | None` has two options; a value has to fit one of them.
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for option in options:
        if dataclasses.is_dataclass(option) and isinstance(value, dict):
            return _part(option, value, path, section)
        if option is Path and isinstance(value, str):
            return Path(value)
        # TOML's 1 is an int and fits a number; `true` does not, although Python calls it an int.
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if get_origin(option) is tuple and isinstance(value, list):
            inner = get_args(option)[0]
            return tuple(_value(inner, item, path, section) for item in value)
        if get_origin(option) is dict and isinstance(value, dict):
            return value
        # `type` and not isinstance: True is no whole number.
        if isinstance(option, type) and type(value) is option:
            return value
    names = " or ".join(_kind_name(option) for option in options if option is not type(None))
    raise DataError(f"{path}: '{section}' is {value!r}, but must be {names}.")


def _kind_name(option: Any) -> str:
    if dataclasses.is_dataclass(option) or get_origin(option) is dict:
        return "a table"
    if get_origin(option) is tuple:
        return "a list"
    return {
        str: "a text",
        Path: "a path",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
    }[option]
