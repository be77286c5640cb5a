"""Atomic writes of files and folders: a reader sees the old content or the new, never a part.

All of our programs rename a finished file by `rename_durably`. `replaced` and `new_folder` serve
most uses. The others need more than a block: a lock, a comparison before the rename, a store's
write-ahead log, or a link.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import mkdtemp, mkstemp

from otel_lightning.collector.files.reason import FULL, named_reason

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600
"""Mode of a file that only its owner may read and write."""
PRIVATE_FOLDER = 0o700
"""Mode of a folder that only its owner may enter."""
UNFINISHED = ".unfinished"
"""End of the name of a folder that is being filled."""


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, so that only their owner may enter them.

    What we keep beside a store has texts of it, so it gets the mode of a new store. A folder that
    exists keeps its mode: its owner may have changed it.

    Raises:
        OSError: If it cannot be made, or a file is in its place.
    """
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            # `Path.mkdir(parents=True)` gives its mode to the last folder only.
            one.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def make_folder_of(path: Path) -> None:
    """Make the folder of a file or folder that a user wants, and those above it.

    Raises:
        OSError: If it cannot be made; the text says which folder, why, and what to do.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        file = next((one for one in path.parents if one.exists() and not one.is_dir()), None)
        why = f"'{file}' is no folder" if file else named_reason(error)
        raise type(error)(
            f"'{path}' cannot be written, because its folder cannot be made ({why}). Choose "
            "another place for it."
        ) from error


@contextmanager
def folder_for(path: Path) -> Iterator[None]:
    """Make the folder of a file or folder that a user wants, and those above it, for the block.

    If nothing was written, the folders that were made are removed again.

    Raises:
        OSError: As `make_folder_of`.
    """
    missing = [one for one in path.parents if not one.exists()]
    make_folder_of(path)
    try:
        yield
    finally:
        # The innermost first; a folder that has something in it stays, and so do those above it.
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()


@contextmanager
def wanted_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file for a file that a user wants; it gets its name when it is complete.

    As `replaced`, in a folder that is made if it is missing. Temporary files that killed processes
    left for the same `path`, which may be large, are removed first.

    Raises:
        OSError: As `make_folder_of` and `replaced`.
    """
    with folder_for(path), replaced(path, tidy=True) as temporary:
        yield temporary


@contextmanager
def replaced(path: Path, mode: int | None = None, *, tidy: bool = False) -> Iterator[Path]:
    """Yield a temporary file to write to; it replaces `path` when the block ends without an error.

    If the block raises, `path` is unchanged and the temporary file is removed. The content is
    synced to disk before the file is renamed, so a crash leaves the old version or the new.

    Args:
        path: The file to replace or create.
        mode: Permissions of the file. Default: those of the replaced file, or for a new file those
            that the process's umask allows.
        tidy: Whether to remove temporary files that killed processes left for `path`. This lists
            its folder.

    Raises:
        OSError: If the folder cannot be written, or the disk is full; it names `path`.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "settings.json"
        >>> with replaced(target) as temporary:
        ...     _ = temporary.write_text("{}")
        >>> target.read_text()
        '{}'
    """
    path = path.resolve()  # replace the target of a symbolic link, not the link
    with temporary_beside(path, mode, tidy=tidy) as temporary:
        try:
            yield temporary
            sync(temporary)
            rename_durably(temporary, path)
        except OSError as error:
            if error.errno in FULL and error.filename is None:
                error.filename = str(path)  # a failed write names no file
            raise


@contextmanager
def temporary_beside(path: Path, mode: int | None, *, tidy: bool = False) -> Iterator[Path]:
    """Yield an empty temporary file in the folder of `path`; remove it if it was not renamed.

    Args:
        path: The file to replace or create.
        mode: Permissions of the file. None: as for `replaced`.
        tidy: As for `replaced`.
    """
    with ExitStack() as held:
        try:
            with locked(path.parent) if tidy else nullcontext():
                # As in `new_folder`: locked, a new file is not taken for one that was left.
                if tidy:
                    _remove_abandoned_files(path)
                descriptor, name = mkstemp(path.suffix, f".{path.name}-", path.parent)
                os.close(descriptor)
                if tidy:
                    held.enter_context(locked(Path(name)))
        except OSError as error:
            error.filename = str(path)  # a user does not know the temporary name
            raise
        temporary = Path(name)
        try:
            temporary.chmod(_mode(path) if mode is None else mode)
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it is renamed to `path` if the block ends without error.

    Temporary folders that killed processes left for the same `path` are removed first.

    Raises:
        BlockingIOError: If another process is filling a folder for the same `path`.
        OSError: If `path` is a folder that is not empty, or its parent cannot be written.
    """
    with folder_for(path), ExitStack() as held:
        # The parent stays locked until the new folder is, so that no other process takes it for one
        # that was left.
        with locked(path.parent):
            _remove_abandoned(path)
            temporary = Path(mkdtemp(UNFINISHED, f".{path.name}-", path.parent))
            held.enter_context(locked(temporary))
        try:
            yield temporary
            temporary.chmod(0o755)  # mkdtemp creates it for its owner alone
            rename_durably(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _left_beside(path: Path, end: str) -> Iterator[Path]:
    """Yield the temporary files and folders of `path` whose names end so."""
    name = re.compile(rf"\.{re.escape(path.name)}-[a-z0-9_]{{8}}{re.escape(end)}")
    return (left for left in path.parent.iterdir() if name.fullmatch(left.name))


def _remove_abandoned(path: Path) -> None:
    for folder in _left_beside(path, UNFINISHED):
        if folder.is_dir():
            with locked(folder, wait=False) as is_free:
                if is_free:
                    shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned_files(path: Path) -> None:
    for file in _left_beside(path, path.suffix):
        # Another process may be writing it, or it may be somebody else's.
        with suppress(OSError):
            if file.is_file() and not file.is_symlink():
                with locked(file, wait=False) as is_free:
                    if is_free:
                        file.unlink()


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a folder or a file for the block; the system frees the lock however the process ends.

    Args:
        path: The folder or the file. Reading and writing there are not hindered.
        wait: Whether to wait for a process that holds the lock.

    Yields:
        Whether it is locked: some file systems have no locks, and Windows none for folders.

    Raises:
        BlockingIOError: If another process holds the lock, and `wait` is false.
    """
    if fcntl is None:
        yield False
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield _has_locked(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def is_locked(descriptor: int) -> bool | None:
    """Return whether another descriptor holds the lock of an open file; None if it has no locks."""
    if fcntl is None:
        return None
    try:
        # Shared, so that two that ask at once do not take each other for the holder.
        return False if _has_locked(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB) else None
    except BlockingIOError:
        return True


def _has_locked(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _mode(path: Path) -> int:
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def rename_durably(temporary: Path, path: Path) -> None:
    """Give a finished file, folder or link its name, and wait until the disk has the name.

    The content must be on the disk already (`sync`), or a crash may leave the name without it.
    """
    temporary.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until the disk has the content of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_open(descriptor)
    finally:
        os.close(descriptor)


def sync_open(file: int) -> None:
    """Wait until the disk has the content of an open file, or the names in an open folder.

    On macOS `fsync` leaves them in the disk's cache.
    """
    if full_sync := getattr(fcntl, "F_FULLFSYNC", None):
        fcntl.fcntl(file, full_sync)
    else:
        os.fsync(file)


def sync_tree(folder: Path) -> None:
    """Wait until the disk has a folder and everything in it; its own name is not waited for."""
    for path in (*folder.rglob("*"), folder):
        sync(path)
