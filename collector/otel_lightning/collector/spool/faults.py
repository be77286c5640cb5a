"""Faults of a spool: why it cannot be read or written, what to do next, and damage to set aside."""

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from otel_lightning.collector.files.atomic import sync
from otel_lightning.collector.files.disk_check import write_error
from otel_lightning.collector.spool.format import Damage, segment_path
from otel_lightning.collector.spool.segment import make_durable
from otel_lightning.collector.store.files.spilling import spill_folder

logger = logging.getLogger(__name__)

ELSEWHERE = "Another file is in the place of the spool's folder: move it away."
READ_ONLY = "Its file system is read-only: mount it for writing."
FULL = "Make room on its disk."
NO_INODES = "Its disk has no inode for another file: delete files there (df -i)."
REFUSED = "Let the user that runs lightning-ingest read and write there."
GONE = "Move its folder back, or mount its disk; or restart lightning-ingest to begin a new one."
TAKEN = "Another process receives there: stop it, or choose another store with --store."
DESCRIPTORS = "Raise the limit of open files, for example with: ulimit -n 4096."
HANGS = "Its disk does not answer: the system's log (dmesg) may say why."
REMEDIES = {
    errno.EEXIST: ELSEWHERE,
    errno.ENOTDIR: ELSEWHERE,
    errno.EROFS: READ_ONLY,
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: "Raise the limit of the size of files (ulimit -f).",
    errno.EACCES: REFUSED,
    errno.EPERM: REFUSED,
    errno.ENOENT: GONE,
    errno.EAGAIN: TAKEN,
    errno.EMFILE: DESCRIPTORS,
    errno.ENFILE: DESCRIPTORS,
    errno.ETIMEDOUT: HANGS,
}
Trial = Callable[[Path], OSError | None]
OTHER = "Check its disk; the system's log (dmesg) may say more."


def fault(path: Path, error: OSError, user: str = "the spool") -> str:
    """Describe a failed access to a file in two sentences: the fault and the remedy.

    Args:
        path: The file or folder, used if the error names none: a failed write does not.
        error: The error.
        user: The part that needs the file, as the text names it.
    """
    remedy = REMEDIES.get(error.errno or 0, OTHER)
    if error.errno == errno.ENOSPC and _has_no_inodes(path):
        remedy = NO_INODES
    reason = error.strerror or str(error)
    return f"{user} cannot use '{error.filename or path}' ({reason}). {remedy}"


def _has_no_inodes(path: Path) -> bool:
    with suppress(OSError):
        status = os.statvfs(path if path.exists() else path.parent)
        return status.f_files > 0 and status.f_favail == 0  # some file systems do not count them
    return False


def folder_fault(folder: Path, tried: Trial = write_error) -> str | None:
    """Describe why a spool's folder cannot be written; None if it can be, or does not exist."""
    error = tried(folder) if os.path.lexists(folder) else None
    return fault(folder, error) if error else None


def store_fault(store_path: Path, tried: Trial = write_error) -> str | None:
    """Describe why the disk of a store takes no writes; None if it does.

    That this user may not write there is a fault only if the store is this user's.
    DuckDB spills to a folder that may be on another disk. If that is full, a checkpoint may fail.

    Args:
        store_path: Path of the store.
        tried: Writes to a folder, and returns why it failed.
    """
    spilled = spill_folder(store_path)
    places = {"the store": store_path.resolve().parent}  # DuckDB's log is beside the file itself
    if spilled.is_dir():
        places["what DuckDB spills"] = spilled
    for user, folder in places.items():
        error = tried(folder)
        if error and (error.errno not in (errno.EACCES, errno.EPERM) or _is_own(store_path)):
            return fault(folder, error, user)
    return None


def _is_own(path: Path) -> bool:
    """Return whether this user owns a file; also if that cannot be found out."""
    with suppress(OSError):
        return path.stat().st_uid == os.geteuid()
    return True


def set_aside(folder: Path, damage: Damage, aside: Path) -> Path:
    """Copy damaged bytes of a spool to a durable file, and log it.

    Args:
        folder: The spool's folder.
        damage: The bytes.
        aside: The folder for the copy; it is made if it does not exist.

    Returns:
        The file.
    """
    aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    segment, offset = damage.start
    file = aside / f"{segment:010d}.{offset}.damaged"
    with segment_path(folder, segment).open("rb") as damaged_segment:
        damaged_segment.seek(offset)
        content = damaged_segment.read(damage.size)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as copy:
        copy.write(content)
        copy.flush()
        make_durable(copy.fileno())  # the segment will be deleted
    sync(aside)
    logger.error("The spool is damaged: %s; they are kept in '%s'.", damage.reason, file)
    return file
