"""What is costly to make is made once for all processes of a test run (`pytest -n`)."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from support.running import INSTALL_S, eventually


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Have `make` fill a new folder, unless another process of this run has; return the folder.

    Nothing may write into the folder later: all processes read it.
    """
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, partial = root / "once" / name, root / "once" / f"{name}.partial"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_name(f"{name}.lock").open("w") as lock:
        eventually(lambda: is_locked(lock), INSTALL_S)
        if not folder.exists():
            partial.mkdir(exist_ok=True)
            make(partial)
            partial.rename(folder)
    return folder


def is_locked(file: IO[str]) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
