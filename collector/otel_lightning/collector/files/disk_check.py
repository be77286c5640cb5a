"""Find out whether a disk takes writes: its flags do not tell.

A file system that has stopped after an error of its disk may still be listed as writable, and a
disk that is full takes a file without content. A disk that hangs answers nothing at all, or answers
only from the system's cache.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from otel_lightning.collector.files.atomic import sync_open

TRIED_BYTES = 64 * 1024
"""Size of a typical request: a disk with less room than that is full."""

READ_BYTES = 4096
HANGS_SECONDS = 10.0
"""A disk that does not end a write for this time hangs."""
IN_A_CHILD = "import sys; from {} import main; main(*sys.argv[1:])"


def main(folder: str, *read: str) -> None:
    """Exit with the number of the error of `write_error` or `read_error`, or with 0."""
    error = write_error(Path(folder)) or read_error(map(Path, read))
    sys.exit((error.errno or errno.EIO) if error else 0)


def error_in_time(folder: Path, read: Iterable[Path] = ()) -> OSError | None:
    """Try to write and to read in another process, and do not wait for it if the disk hangs.

    A process cannot even end while one of its threads waits for such a disk.

    Args:
        folder: Folder to write to.
        read: Files to read, or folders whose files are read.

    Returns:
        Why it failed, such as `ETIMEDOUT`; None if it did not.
    """
    script = IN_A_CHILD.format(__name__)
    null = subprocess.DEVNULL  # otherwise a reader of our output would wait for the child, too
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(folder), *map(str, read)],
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
        code = child.wait(HANGS_SECONDS)
    except subprocess.TimeoutExpired:
        code = errno.ETIMEDOUT
    except OSError:  # the system has no room for a process
        return write_error(folder)
    return OSError(code, os.strerror(code), str(folder)) if code else None


def write_error(folder: Path) -> OSError | None:
    """Write to a file without a name in a folder, and wait until the disk has it.

    Returns:
        Why it failed; None if it did not.
    """
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(TRIED_BYTES))
            file.flush()
            sync_open(file.fileno())
    except OSError as error:
        # An error about the file names none, or one that nobody can find.
        return OSError(error.errno, error.strerror, str(folder))
    return None


def read_error(paths: Iterable[Path]) -> OSError | None:
    """Read the start of files from the disk, not from the system's cache.

    Args:
        paths: The files, or folders whose files are read.

    Returns:
        Why it failed; None if it did not, or a file does not exist.
    """
    for path in paths:
        try:
            for file in path.iterdir() if path.is_dir() else [path]:
                if not file.is_dir():
                    _read_start(file)
        except OSError as error:
            return OSError(error.errno, error.strerror, str(path))
    return None


def _read_start(file: Path) -> None:
    with suppress(FileNotFoundError), file.open("rb", buffering=0) as opened:
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(opened.fileno(), 0, READ_BYTES, os.POSIX_FADV_DONTNEED)
        opened.read(READ_BYTES)
