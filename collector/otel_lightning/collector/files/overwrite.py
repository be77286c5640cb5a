"""Overwrite files, so that their former content cannot be read from the disk."""

import os
from pathlib import Path

from otel_lightning.collector.files.atomic import sync_open

ZEROS = bytes(1 << 20)


def overwrite(file: int) -> None:
    """Fill an open file with zeros, and wait until the disk has them."""
    size = os.fstat(file).st_size
    for offset in range(0, size, len(ZEROS)):
        os.pwrite(file, ZEROS[: size - offset], offset)
    sync_open(file)


def erase_file(path: Path) -> None:
    """Fill a file with zeros, and delete it."""
    with path.open("r+b") as file:
        overwrite(file.fileno())
    path.unlink()
