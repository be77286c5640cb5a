"""Why a file, a program or a connection failed, in words for a user."""

import errno
import os

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of the errors of a full disk, or of this user's full part of it."""
NO_SPACE = tuple(os.strerror(number) for number in sorted(FULL))
"""The system's texts for these errors, which DuckDB and Arrow repeat."""


def reason(error: BaseException) -> str:
    """Return why something failed, without the system's number and the name of the file.

    Example:
        >>> reason(FileNotFoundError(2, "No such file or directory", "tasks.json"))
        'No such file or directory'
        >>> reason(ValueError("line 3 is no JSON"))
        'line 3 is no JSON'
    """
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error)


def named_reason(error: BaseException) -> str:
    """Return why something failed, after the name of the file if the error has one.

    Example:
        >>> named_reason(FileNotFoundError(2, "No such file or directory", "tasks.json"))
        "'tasks.json': No such file or directory"
    """
    # An error whose text we wrote ourselves has no file name.
    name = error.filename if isinstance(error, OSError) else None
    return reason(error) if name is None else f"'{name}': {reason(error)}"
