"""Locks of open files, by which runs of one store wait for each other.

The system frees a lock when the last descriptor of the open file is closed, however its process
ends. A process that inherits a descriptor keeps the lock, too.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from otel_lightning.learner.rollout_runner.plan import runs_folder


@contextmanager
def opened_lock(store: Path, name: str) -> Iterator[IO[bytes]]:
    """Open the file of a lock of a store, in the folder of its runs; it is not locked yet."""
    place = runs_folder(store) / f"{name}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("ab") as file:
        yield file


def locked_alone(file: IO[bytes]) -> bool:
    """Lock an open file for this process alone, without waiting; return whether it is locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
