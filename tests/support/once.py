"""What is costly to make is made once for all processes of a test run (`pytest -n`)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_lightning.learner.file_lock import locked_alone, opened_lock
from support.running import INSTALL_S, eventually


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Have `make` fill a new folder, unless another process of this run has; return the folder.

    Nothing may write into the folder later: all processes read it.
    """
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, partial = root / "once" / name, root / "once" / f"{name}.partial"
    with opened_lock(folder.with_name(f"{name}.lock")) as lock:
        eventually(lambda: locked_alone(lock), INSTALL_S)
        if not folder.exists():
            partial.mkdir(exist_ok=True)
            make(partial)
            partial.rename(folder)
    return folder
