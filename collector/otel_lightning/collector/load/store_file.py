"""Notice that the file of an open store was deleted, or that another one took its place.

DuckDB goes on to write to the file that it opened, also after that file has lost its name. What is
stored then is gone when the process ends.
"""

from pathlib import Path

from otel_lightning.collector.store import BrokenStoreError, StoreError


class StoreFile:
    """The file that a store was opened from."""

    def __init__(self, path: Path | None) -> None:
        """Record which file has the store's name now.

        Args:
            path: Path of the open store; None for one without a file.
        """
        self._path = path
        self.note()

    def note(self) -> None:
        """Record which file has the store's name now: `forget` rewrites the file."""
        self._noted = self._present()

    def check(self) -> None:
        """Check that the file still has its name.

        Raises:
            StoreError: If it was deleted or replaced.
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

    def _present(self) -> tuple[int, int] | None:
        """Return device and inode of the file; None if there is none."""
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino
