"""How much DuckDB may spill to disk.

DuckDB's own limit is 90 % of the disk that is free when the store is opened. One statement of a
reader, such as a sort of all texts, could then leave no room for the spool, and nothing more would
be acknowledged.
"""

import shutil
from contextlib import suppress
from pathlib import Path

import duckdb

SHARE = 0.25
"""Largest part of the free disk that all statements together may spill to; the rest is for the
spool and the store."""
SETTING = "max_temp_directory_size"


def limit_spilling(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Set how much may be spilled, by what is free on the disk now; call it from time to time.

    A statement that needs more fails, and no other one does.

    Args:
        connection: A connection to the store.
        path: The store's file; DuckDB spills to a folder beside it.
    """
    spilled = _spilled(path.with_name(path.name + ".tmp"))
    most = max(int(SHARE * (shutil.disk_usage(path.parent).free + spilled)), spilled)
    with suppress(duckdb.OutOfMemoryException):  # more was spilled meanwhile: the limit stays
        connection.execute(f"SET GLOBAL {SETTING} = '{most}B'")


def _spilled(folder: Path) -> int:
    size = 0
    for file in folder.glob("*"):
        with suppress(FileNotFoundError):  # the statement has ended
            size += file.stat().st_size
    return size
