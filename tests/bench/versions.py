"""An older version of the package beside this one: its files, and what it measures, by turns."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
ROOTS = ("instrumentation", "collector", "learner")
ONCE = Path(__file__).with_name("derive_once.py")
RELEASED = "9e90471"
"""The last commit of 0.1.0."""


@contextmanager
def checked_out(ref: str) -> Iterator[Path]:
    """Lend the files of a git ref in a temporary folder.

    Raises:
        SystemExit: If git does not know the ref.
    """
    git = ["git", "-C", str(ROOT), "archive", ref, *ROOTS]
    done = subprocess.run(git, check=False, capture_output=True)
    if done.returncode:
        sys.exit(f"git does not know '{ref}': {done.stderr.decode().strip()}. Choose with --old.")
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def run(version: Path, *arguments: object, script: Path = ONCE) -> Any:
    """Run a script in a process of its own with a version of the package.

    Args:
        version: The folder that holds the version's source roots.
        arguments: What to do; see `main` of the script.
        script: `derive_once.py`, or another one beside it.

    Returns:
        The value of the JSON on its last line.
    """
    folders = os.pathsep.join(str(version / root) for root in ROOTS)
    command = [sys.executable, str(script), *map(str, arguments)]
    with TemporaryDirectory() as scratch:
        environment = os.environ | {"PYTHONPATH": folders, "BENCH_FOLDER": scratch}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout.splitlines()[-1])
