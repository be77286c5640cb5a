"""Files that tell whether the process that wrote them still runs: it keeps a lock on them.

The system frees the lock however the process ends. The number of the process would not tell: in a
container it is 1, as that of each process that is started there by itself, such as a command that
looks at the store after the ingester was killed. Nor is a number of one container known in another.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from otel_lightning.collector.files.atomic import PRIVATE, is_locked, locked, replaced

_LOCKS: dict[Path, ExitStack] = {}
"""The locks of this process, by the file."""


def run_file(store_path: Path) -> Path:
    """Return the file that exists while a process serves a store; beside the store."""
    return store_path.with_name(store_path.name + ".run")


def starting_file(store_path: Path) -> Path:
    """Return the file that exists while a process is about to serve a store; beside the store."""
    return store_path.with_name(store_path.name + ".starting")


@contextmanager
def starting(store_path: Path) -> Iterator[None]:
    """Tell commands, while the block opens and migrates a store, that this process will serve it.

    It is a hint only: if the file cannot be written or locked, commands do not wait.
    """
    path = starting_file(store_path)
    with ExitStack() as held:
        with suppress(OSError):  # a full disk, or another process that is about to serve it
            path.touch(PRIVATE)
            held.enter_context(locked(path, wait=False))
            held.callback(path.unlink, missing_ok=True)
        yield


def write_process_file(path: Path, text: str) -> None:
    """Write a file that only its user can read, and keep it locked until this process ends.

    Raises:
        OSError: If the folder cannot be written, or the disk is full. The former file remains then.
    """
    with ExitStack() as held:
        with replaced(path, PRIVATE) as temporary:
            temporary.write_text(text)
            # Before it has its name, so that nobody finds it without its lock.
            held.enter_context(locked(temporary))
        _LOCKS.setdefault(path.absolute(), ExitStack()).close()
        _LOCKS[path.absolute()] = held.pop_all()


def runs_still(path: Path) -> bool | None:
    """Return whether the process that wrote such a file runs; None if the file system has no locks.

    Raises:
        OSError: If the file does not exist, or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)
