"""Notice that the file of an open store was deleted, or that another file was put in its place.

DuckDB goes on to write to the file that it opened, also after that file has lost its name. The rows
stored then are gone when the process ends. If another file was copied over it, DuckDB would write
its blocks between those of the other one, and both would be lost.
"""

import os
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.store import BrokenStoreError, Store, StoreError
from otel_lightning.collector.store.files.held_file import held

HEADER_BYTES = 4096
"""A file of DuckDB begins with three headers: one of the file, two of its last checkpoints."""
CHECKPOINT_NUMBER = slice(8, 16)
"""Place of the number of a checkpoint in its header."""


class _Headers(NamedTuple):
    """The headers of a file of DuckDB."""

    file: bytes
    """The header of the file, which DuckDB never changes: it has a random id."""
    checkpoints: tuple[bytes, bytes]
    """The headers of the last two checkpoints, the last one first."""

    @property
    def number(self) -> int:
        """Number of the last checkpoint, which DuckDB only increases."""
        return _number(self.checkpoints[0])

    def may_follow(self, noted: "_Headers") -> bool:
        """Return whether the file may be the one of before, which DuckDB has written on.

        A checkpoint overwrites the older of the two headers. So of a file with one more checkpoint
        the other header is known. With more of them, SQL clients have written some, or somebody
        has put a copy there that was written on elsewhere: which of both cannot be told.
        """
        later = self.number - noted.number
        if self.file != noted.file or later < 0:
            return False
        if later == 0:
            return self.checkpoints == noted.checkpoints
        return later > 1 or self.checkpoints[1] == noted.checkpoints[0]


class StoreFile:
    """The file that a store was opened from."""

    def __init__(self, store: Store) -> None:
        """Record which file has the store's name now.

        Args:
            store: The open store; it may be one without a file.
        """
        self._store, self._path = store, store.path
        self.note()

    def note(self) -> None:
        """Record which file has the store's name now: `forget` rewrites the file."""
        self._noted = self._present()
        self._headers = _headers(self._path) if self._path and self._noted else None

    def check(self) -> None:
        """Check that the file still has its name and its content.

        Raises:
            StoreError: If it was deleted, replaced or overwritten.
            BrokenStoreError: If its disk was mounted again: it is the same file, and DuckDB has
                open what the disk no longer takes.
        """
        present, noted = self._present(), self._noted
        if present and noted and present != noted and present[1] == noted[1]:
            raise BrokenStoreError(
                f"The disk of '{self._path}' was mounted again, and DuckDB still has the file of "
                "before open. lightning-ingest has to be restarted."
            )
        if present != noted:
            raise StoreError(
                f"The file '{self._path}' was deleted or replaced while lightning-ingest has it "
                "open. What arrives stays on the spool. Move the file back, or restart "
                "lightning-ingest."
            )
        if self._path and self._headers and self._is_overwritten(self._path, self._headers):
            self._store.leave_file_alone()
            raise StoreError(
                f"The file '{self._path}' was overwritten while lightning-ingest has it open. What "
                f"arrives stays on the spool. Stop lightning-ingest, move '{self._path}.wal' away "
                "if it is there, and start it again: it uses the file as it is then."
            )

    def _is_overwritten(self, path: Path, noted: _Headers) -> bool:
        present = _headers(path)
        if present is None or not present.may_follow(noted):
            return True
        self._headers = present
        return False

    def _present(self) -> tuple[int, int] | None:
        """Return device and inode of the file; None if there is none."""
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


def _headers(path: Path) -> _Headers | None:
    """Read the headers of a file that DuckDB has open; None if it is too short to have them."""
    content = os.pread(held(path), 3 * HEADER_BYTES, 0)
    # Another thread may write a header just now, of which a part was read.
    while content != (again := os.pread(held(path), 3 * HEADER_BYTES, 0)):
        content = again
    if len(content) < 3 * HEADER_BYTES:
        return None
    checkpoints = content[HEADER_BYTES : 2 * HEADER_BYTES], content[2 * HEADER_BYTES :]
    older, newer = sorted(checkpoints, key=_number)
    return _Headers(content[:HEADER_BYTES], (newer, older))


def _number(checkpoint: bytes) -> int:
    return int.from_bytes(checkpoint[CHECKPOINT_NUMBER], "little")
