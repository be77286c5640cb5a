"""Give DuckDB's write-ahead log the permissions of its store, because it has the same texts.

DuckDB creates and deletes the log while it works, with the umask of the process. The process that
serves a store has a umask for that (`keep_files_private`). Other programs keep their own, because
their threads, and the programs that they start, create files too; so there the log gets its mode
when the statement that created it has ended.
"""

import stat
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
"""The umask that makes a new file readable for its user only."""


class PrivateLog:
    """The log of an open store."""

    def __init__(self, store_path: Path) -> None:
        """Name the log; it need not exist."""
        self._store = store_path
        self._log = store_path.with_name(store_path.name + ".wal")

    def close_to_others(self) -> None:
        """Remove the permissions of the log that the store does not have."""
        # Mostly there is no log, or it has the mode already. One of another user cannot be changed.
        with suppress(OSError):
            mode = stat.S_IMODE(self._log.stat().st_mode)
            allowed = mode & stat.S_IMODE(self._store.stat().st_mode)
            if mode != allowed:
                self._log.chmod(allowed)
