"""Write to the open file of a spool segment, and make it durable."""

import os
from pathlib import Path

from otel_lightning.collector.files.atomic import rename_durably, sync_open

COPIED_BYTES = 1024 * 1024  # read at a time


def make_durable(file: int) -> None:
    """Sync the written bytes of a file to disk. macOS has no `fdatasync`."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(file)
    else:
        sync_open(file)


def write_all(file: int, parts: list[bytes]) -> int:
    """Write parts one after the other; return the number of bytes."""
    data = memoryview(b"".join(parts))
    unwritten = data
    while unwritten:
        unwritten = unwritten[os.write(file, unwritten) :]
    return len(data)


def copied(file: int, path: Path) -> int:
    """Copy an open file, which may be deleted, to a path; return the copy's descriptor."""
    partial = path.with_suffix(".partial")
    copy = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        size = 0
        # `pread` leaves the position alone, where the next record is written if this fails.
        while data := os.pread(file, COPIED_BYTES, size):
            size += write_all(copy, [data])
        make_durable(copy)
        rename_durably(partial, path)
    except OSError:  # such as a full disk; it is tried again and again
        os.close(copy)
        raise
    os.close(file)
    return copy
