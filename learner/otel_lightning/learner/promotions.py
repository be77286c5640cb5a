"""Recorded promotions and rollbacks, of policies as of models."""

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


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
