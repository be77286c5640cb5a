"""Descriptors of a store's file that this process opens beside DuckDB's own.

DuckDB's lock belongs to the process: the system drops it as soon as the process closes any
descriptor of the file (fcntl(2)), and another process could then write the file too. So such a
descriptor stays open as long as DuckDB has the file open.
"""

import os
from pathlib import Path

_HELD: dict[tuple[int, int], int] = {}
"""Descriptors by device and inode."""


def held(path: Path) -> int:
    """Return a descriptor for reading and writing the store's file. Do not close it."""
    status = path.stat()
    key = (status.st_dev, status.st_ino)
    if key not in _HELD:
        _HELD[key] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return _HELD[key]


def release(descriptor: int) -> None:
    """Close the descriptor of a file that DuckDB no longer has open."""
    status = os.fstat(descriptor)
    del _HELD[status.st_dev, status.st_ino]
    os.close(descriptor)
