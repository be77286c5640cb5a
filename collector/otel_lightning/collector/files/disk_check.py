"""Find out whether a disk takes writes: its flags do not tell.

A file system that has stopped after an error of its disk may still be listed as writable, and a
disk that is full takes a file without content. A disk that hangs answers nothing at all.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

from otel_lightning.collector.files.atomic import sync_open

TRIED_BYTES = 64 * 1024
"""Size of a typical request: a disk with less room than that is full."""


HANGS_SECONDS = 10.0
"""A disk that does not end a write for this time hangs."""
IN_A_CHILD = "import sys; from {} import main; main(sys.argv[1])"


def main(folder: str) -> None:
    """Exit with the number of the error of `write_error`, or with 0."""
    error = write_error(Path(folder))
    sys.exit((error.errno or errno.EIO) if error else 0)


def write_error_in_time(folder: Path) -> OSError | None:
    """Do the same in another process, and do not wait for it if the disk hangs.

    A process cannot even end while one of its threads waits for such a disk.

    Returns:
        Why it failed, such as `ETIMEDOUT`; None if it did not.
    """
    script = IN_A_CHILD.format(__name__)
    null = subprocess.DEVNULL  # or whoever reads what we print would wait for the child, too
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
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
