"""Locks of open files, by which processes that use one store wait for each other.

The system frees a lock when the last descriptor of the open file is closed, however its process
ends. A process that inherits a descriptor keeps the lock, too.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from otel_lightning.collector.files.atomic import make_private
from otel_lightning.learner.errors import DataError


@contextmanager
def opened_lock(place: Path) -> Iterator[IO[bytes]]:
    """Open the file of a lock, and make its folder; it is not locked yet.

    Args:
        place: The file. Its content is left as it is.

    Raises:
        DataError: If the folder or the file cannot be made or opened.
    """
    try:
        make_private(place.parent)
        file = place.open("ab")
    except OSError as error:
        raise DataError(
            f"The lock '{place}' cannot be opened ({error.strerror}): '{error.filename}' must be "
            f"a {'file' if error.filename == str(place) else 'folder'} that the user of this "
            "command may write. Correct that, and run the same command again."
        ) from error
    with file:
        yield file


def locked_alone(file: IO[bytes]) -> bool:
    """Lock an open file for this process alone, without waiting; return whether it is locked.

    Raises:
        DataError: If it cannot be locked for another reason than that a process has it locked.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise DataError(
            f"'{file.name}' cannot be locked ({error.strerror}), so nobody could tell whether "
            "another process uses it. Put the store on a disk whose file system has locks."
        ) from error
    return True
