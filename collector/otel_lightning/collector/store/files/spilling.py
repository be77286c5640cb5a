"""Where DuckDB spills to disk, and how much.

Its own folder, `STORE.tmp`, has the mode that the umask allows, though what is spilled has texts of
the store. It also is one folder for all processes: of two that read a store at once, each deleted
the files of the other, and both crashed. So each process spills to a private folder of its own in
`STORE.tmp`.

Its own limit is 90 % of the disk that is free when the store is opened. One statement of a
reader, such as a sort of all texts, could then leave no room for the spool, and nothing more would
be acknowledged.
"""

import fnmatch
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import duckdb

from otel_lightning.collector.files.atomic import make_private
from otel_lightning.collector.files.overwrite import erase_file
from otel_lightning.collector.store.sql_text import quote_literal

SHARE = 0.25
"""Largest part of the free disk that all statements together may spill to; the rest is for the
spool and the store."""
SETTING = "max_temp_directory_size"
SPILLED = "duckdb_temp_*"
ATTEMPTS = 10


class SpillFolder:
    """The folder into which a process spills a store's data; deleted when nobody refers to it."""

    def __init__(self, path: Path) -> None:
        """Make it, for this user only.

        Args:
            path: The store's file.

        Raises:
            OSError: If it cannot be made.
        """
        self.path = _made(spill_folder(path))
        # Also when the program ends without closing the store. A forked process leaves it alone.
        weakref.finalize(self, _remove, self.path, os.getpid())


_in_use: "weakref.WeakValueDictionary[Path, SpillFolder]" = weakref.WeakValueDictionary()
"""The folders of this process, by the store's file: DuckDB opens a file once in a process."""


def spill_privately(
    connection: duckdb.DuckDBPyConnection, path: Path, *, is_client: bool = False
) -> SpillFolder | None:
    """Let an open store spill to a folder of its own; keep the answer as long as it is open.

    Args:
        connection: A connection to the store.
        path: The store's file.
        is_client: Whether another process serves the store. What DuckDB needs here besides would be
            spilled to a folder `.tmp` in the current one.

    Returns:
        The folder; None where none can be made. Then DuckDB can make none either.
    """
    path = path.absolute()
    if not is_client and (folder_in_use := _in_use.get(path)):
        return folder_in_use
    with suppress(OSError):  # such as a store in a folder that this user may only read
        folder = SpillFolder(path)
        connection.execute(f"SET temp_directory = {quote_literal(str(folder.path))}")
        if not is_client:
            _in_use[path] = folder
        return folder
    return None


def erase_spilled(path: Path) -> None:
    """Erase what killed processes spilled to disk for a store: DuckDB leaves it there for good.

    Call it while this process holds the store to write, so that no other one has it open.

    Args:
        path: The store's file.
    """
    own = _in_use.get(path.absolute())
    for folder, files in _spilled(spill_folder(path)):
        if own and folder == own.path:
            continue
        for file in files:
            erase_file(file)
        if folder != spill_folder(path):
            with suppress(OSError):  # a file that is not DuckDB's
                folder.rmdir()


def limit_spilling(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Limit the spilled bytes by the free bytes of the disk; call it from time to time.

    A statement that needs more fails, and no other one does.

    Args:
        connection: A connection to the store.
        path: The store's file; DuckDB spills to a folder beside it.
    """
    spilled = 0
    for _, files in _spilled(spill_folder(path)):
        for file in files:
            with suppress(FileNotFoundError):  # the statement has ended
                spilled += file.stat().st_size
    folder = spill_folder(path)  # it may be a link, or another disk may be mounted there
    free = shutil.disk_usage(folder if folder.exists() else path.parent).free
    limit = max(int(SHARE * (free + spilled)), spilled)
    with suppress(duckdb.OutOfMemoryException):  # more was spilled meanwhile: the limit stays
        connection.execute(f"SET GLOBAL {SETTING} = '{limit}B'")


def spill_folder(path: Path) -> Path:
    """Return the folder that all processes of one store spill to; it may be on another disk."""
    return path.absolute().with_name(path.name + ".tmp")


def _made(common: Path) -> Path:
    for _ in range(ATTEMPTS):
        make_private(common)
        with suppress(FileNotFoundError):  # another process has just removed the empty `common`
            return Path(mkdtemp(prefix=f"{os.getpid()}-", dir=common))
    raise FileNotFoundError(common)


def _remove(folder: Path, process: int) -> None:
    if os.getpid() != process:
        return
    with suppress(OSError):  # others spill there, or DuckDB still has a file there
        folder.rmdir()
        folder.parent.rmdir()


def _spilled(common: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield each folder that is spilled to, and the files in it.

    Other processes remove theirs meanwhile; `os.walk` passes over a folder that is gone.
    """
    for folder, _, names in os.walk(common):
        yield Path(folder), [Path(folder, name) for name in fnmatch.filter(names, SPILLED)]
