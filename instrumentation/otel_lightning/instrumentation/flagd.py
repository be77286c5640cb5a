"""flagd's flag files, for `policy` and `provider`: the flags, and how traffic is split."""

import json
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple


class Split(NamedTuple):
    """How the traffic of a flag is split between its variants."""

    places: tuple[tuple[str, float], ...]
    """Variants with their shares, in the order of the targeting. A policy over several flags
    repeats variants: each place is one combination, and has the same number in each flag."""

    bucketing: str | None = None
    """Text before the unit in the hash of a draw. Flags of one policy share it; other flags have
    none, and are drawn by their key."""

    @property
    def shares(self) -> dict[str, float]:
        """The total share of each variant."""
        shares: dict[str, float] = {}
        for variant, share in self.places:
            shares[variant] = shares.get(variant, 0.0) + share
        return shares


def file_state(path: str) -> tuple[int, ...]:
    """Return the time, size and inode of a file: one of them changes when the file is written.

    Raises:
        OSError: If there is no such file.
    """
    status = os.stat(path)  # noqa: PTH116 - each model call does this: no Path
    # The time alone has steps of some milliseconds: a file that is read while it is written may
    # have the same time when it is complete.
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_flags(path: str) -> dict[str, Any]:
    """Read the flags of a file.

    Raises:
        OSError: If it cannot be read.
        ValueError, KeyError, TypeError, RecursionError: If it is no flag file.
    """
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as above
        return dict(json.load(file)["flags"])


def split(parts: Sequence[Any]) -> Split:
    """Read the parts of a `fractional` rule; without a weight above 0 there are no places.

    Args:
        parts: Pairs of a variant and its weight, 1 if absent. The value to hash may be before them.

    Raises:
        ValueError: If a weight is negative, infinite or not a number.
    """
    pairs = [part for part in parts if isinstance(part, list) and part]
    weights = [(str(pair[0]), float(pair[1] if len(pair) > 1 else 1)) for pair in pairs]
    if not all(0 <= weight < math.inf for _, weight in weights):
        raise ValueError(f"weights must be 0 or more: {weights}")
    total = sum(weight for _, weight in weights)
    places = tuple((variant, weight / total) for variant, weight in weights if weight > 0)
    first = parts[0] if parts else None
    shared = first["cat"][0] if isinstance(first, dict) and "cat" in first else None
    return Split(places, shared if isinstance(shared, str) else None)
