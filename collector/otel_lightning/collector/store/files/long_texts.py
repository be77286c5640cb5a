"""Remember that a store has many long texts, and keep DuckDB from merging its row groups then.

A checkpoint merges neighbouring small row groups, as of batches of few spans. For that it holds all
texts of a column of 2,048 rows in memory at once: of 30 spans with 30 MiB each, some gigabytes. If
the memory limit has no room, the checkpoint fails, and DuckDB uses the file no more.

Without merging, a row group has what was stored between two checkpoints. The setting must be the
same in every process that writes the store, also for the checkpoint at the start after a crash. So
a file beside the store says it.
"""

from collections.abc import Mapping
from pathlib import Path

SETTING = "max_vacuum_tasks"
"""DuckDB's setting: how many merges a checkpoint may do."""


def note_file(store_path: Path) -> Path:
    """Return the file that exists if a store has many long texts."""
    return store_path.with_name(store_path.name + ".long")


def config(store_path: Path) -> Mapping[str, str]:
    """Return DuckDB's settings for writing the store at a path."""
    return {SETTING: "0"} if note_file(store_path).exists() else {}
