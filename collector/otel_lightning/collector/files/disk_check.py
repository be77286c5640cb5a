"""Find out whether a disk takes writes: its flags do not tell.

A file system that has stopped after an error of its disk may still be listed as writable, and a
disk that is full takes a file without content.
"""

from pathlib import Path
from tempfile import TemporaryFile

from otel_lightning.collector.files.atomic import sync_open

TRIED_BYTES = 64 * 1024
"""Size of a typical request: a disk with less room than that is full."""


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
