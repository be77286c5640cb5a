"""Say why a spool cannot be read or written, which file it is about, and what to do next."""

import errno
import os
from pathlib import Path

ELSEWHERE = "Another file is in the place of the spool's folder: move it away."
READ_ONLY = "Its file system is read-only: mount it for writing."
FULL = "Make room on its disk."
REFUSED = "Let the user that runs lightning-ingest read and write there."
DESCRIPTORS = "Raise the limit of open files, for example with: ulimit -n 4096."
REMEDIES = {
    errno.EEXIST: ELSEWHERE,
    errno.ENOTDIR: ELSEWHERE,
    errno.EROFS: READ_ONLY,
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: "Raise the limit of the size of files (ulimit -f).",
    errno.EACCES: REFUSED,
    errno.EPERM: REFUSED,
    errno.EMFILE: DESCRIPTORS,
    errno.ENFILE: DESCRIPTORS,
}
OTHER = "Check its disk; the system's log (dmesg) may say more."


def fault(path: Path, error: OSError) -> str:
    """Describe a failed access to a spool in two sentences: the fault and the remedy.

    Args:
        path: The file or folder, used if the error names none: a failed write does not.
        error: The error.
    """
    remedy = REMEDIES.get(error.errno or 0, OTHER)
    reason = error.strerror or str(error)
    return f"the spool cannot use '{error.filename or path}' ({reason}). {remedy}"


def folder_fault(folder: Path) -> str | None:
    """Describe why a spool's folder cannot be written; None if it can be, or does not exist."""
    if not os.path.lexists(folder):
        return None
    number = 0
    if not folder.is_dir():
        number = errno.ENOTDIR
    elif os.statvfs(folder).f_flag & os.ST_RDONLY:
        number = errno.EROFS
    elif not os.access(folder, os.W_OK | os.X_OK):
        number = errno.EACCES
    return fault(folder, OSError(number, os.strerror(number))) if number else None
