"""Files of one JSON object a line."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def read_lines(path: Path, *fields: str) -> list[dict[str, Any]]:
    """Read every line of a file.

    Raises:
        ValueError: If a line is not a JSON object with these fields.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        _read_line(line, fields, f"{path}:{number}") for number, line in enumerate(lines, start=1)
    ]


def _read_line(line: str, fields: Sequence[str], source: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{source}: not JSON ({error}). Was the file cut off?") from None
    if not isinstance(row, dict):
        raise ValueError(f"{source}: not a JSON object.")  # noqa: TRY004 - bad data, not a bad call
    missing = [field for field in fields if field not in row]
    if missing:
        raise ValueError(f"{source}: no '{missing[0]}'. Is it the right file?")
    return row


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write each row as a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
