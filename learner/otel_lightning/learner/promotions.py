"""Recorded promotions and rollbacks, of policies as of models."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def changes_of_file(changes: Iterable[Row], flags: Path) -> list[Row]:
    """Return the changes of one flag file; all of them if none names it, as after it was moved.

    A flag may be served by several files, such as one for tests and one for production.

    Args:
        changes: Rows with the column `flags`.
        flags: The file.
    """
    all_changes, name = list(changes), str(flags.resolve())
    return [row for row in all_changes if row["flags"] == name] or all_changes


def standing_promotions(changes: Iterable[Row]) -> list[Row]:
    """Return the promotions that were not rolled back; each rollback undoes the one before it.

    Args:
        changes: Rows with the column `action`, oldest first.

    Example:
        >>> [row["version"] for row in standing_promotions([
        ...     {"action": "promote", "version": "a"},
        ...     {"action": "promote", "version": "b"},
        ...     {"action": "rollback", "version": "a"},
        ... ])]
        ['a']
    """
    standing: list[Row] = []
    for row in changes:
        standing = standing[:-1] if row["action"] == "rollback" else [*standing, row]
    return standing
