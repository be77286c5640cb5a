"""The page's SQL statements: files of the folder `sql`, put together from parts and conditions."""

import re
import textwrap
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from otel_lightning.collector.store.sql_text import PLACEHOLDER, list_literal, literal

PART = re.compile(r"^( *)-- part: (\w+)\n", re.MULTILINE)
"""A line of a statement that stands for a file of the folder `sql/parts`."""
CONDITION = re.compile(r"^(.*) -- if: (\w+)\n", re.MULTILINE)
"""A line of a statement that is left out if a parameter is None."""


def sql_text(name: str, parameters: Mapping[str, Any]) -> str:
    """Return the text of a statement in the folder `sql`, with `$name` for its parameters.

    Args:
        name: Name of the file, without `.sql`.
        parameters: Their values. A condition of a parameter that is None is left out: DuckDB would
            evaluate `$name IS NULL OR ...` for every row.

    Raises:
        KeyError: If there is no such statement.
    """
    return CONDITION.sub(
        lambda match: "" if parameters[match[2]] is None else f"{match[1]}\n", _whole(name)
    )


def bound(name: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a statement of the folder `sql`, and the parameters that its text has."""
    text = sql_text(name, parameters)
    return text, {key: parameters[key] for key in PLACEHOLDER.findall(text)}


def with_values(text: str, parameters: Mapping[str, Any]) -> str:
    """Write a statement with the values of its parameters, to be copied."""
    return PLACEHOLDER.sub(lambda match: _value(parameters[match[1]]), text)


def _value(value: Any) -> str:
    return list_literal(value) if isinstance(value, list) else literal(value)


@cache
def _whole(name: str) -> str:
    folder = resources.files(__package__) / "sql"
    if f"{name}.sql" not in {file.name for file in folder.iterdir()}:
        raise KeyError(name)

    def part(match: re.Match[str]) -> str:
        text = (folder / "parts" / f"{match[2]}.sql").read_text(encoding="utf-8")
        return textwrap.indent(text, match[1])

    return PART.sub(part, (folder / f"{name}.sql").read_text(encoding="utf-8"))
