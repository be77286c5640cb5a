"""How far the spool of a store is stored.

A module of its own, since a client of a running ingester asks this and does not decode anything:
what decodes and derives takes 0.2 CPU-seconds to import.
"""

import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from otel_lightning.collector.spool.folder import backlog, spool_folder
from otel_lightning.collector.spool.format import Position, scan, segment_size, segments_of
from otel_lightning.collector.spool.identity import has_id
from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.rows import Rows
from otel_lightning.collector.terminal.next_command import next_command

LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.1, 0.5
"""The first pause between two questions, which each cost the ingester CPU, and the longest one."""
STALL_SECONDS = 300.0
"""Longest wait for an ingester that makes no progress."""
SAY_AFTER_SECONDS = 10.0
NOTHING = Position(0, 0)
"""The end of a spool without a request."""


def spool_position(store: Rows) -> Position:
    """Return the spool position up to which requests are stored."""
    rows = store.rows("SELECT segment, byte_offset FROM spool_position")
    return Position(rows[0]["segment"], rows[0]["byte_offset"]) if rows else Position(1, 0)


def stored_until(store: Rows, folder: Path) -> Position:
    """Return the position in a spool up to which a store has its requests; its start if none.

    The position that the store remembers means nothing in a spool that it was not fed from: the
    store was restored, or the spool was deleted or moved there.

    Args:
        store: The store.
        folder: The folder of the spool that is beside it.
    """
    position, spool_ids = spool_position(store), list[str]()
    with suppress(StoreError):  # a store of 0.1.0 that is not migrated yet has no such table
        spool_ids = [row["spool_id"] for row in store.rows("SELECT spool_id FROM spool_identity")]
    is_same = has_id(folder, spool_ids) if spool_ids else True
    return position if is_same and position <= _end(folder) else NOTHING


def waiting(store: Rows, path: Path) -> int:
    """Return the number of bytes in the spool of the store at `path` that are not stored yet."""
    folder = spool_folder(path)
    return backlog(folder, stored_until(store, folder))


def is_up_to_date(store: Rows, path: Path) -> bool:
    """Return whether a store that nobody serves has stored and derived its whole spool.

    If the spool belongs to another store, none of them counts as stored.
    """
    return not waiting(store, path) and not store.rows("SELECT 1 AS one FROM stale LIMIT 1")


def oldest_waiting(store: Rows, path: Path) -> int | None:
    """Return when the oldest request that is not stored yet was received, Unix nanoseconds."""
    folder = spool_folder(path)
    position = stored_until(store, folder)
    for segment in segments_of(folder):
        if segment < position.segment:
            continue
        with suppress(FileNotFoundError):  # the loader has just deleted it
            for record in scan(folder, max(position, Position(segment, 0))):
                return record.received_ns
    return None


def wait_until_stored(store: Rows, path: Path, seconds: float) -> None:
    """Wait until the running ingester has stored what it had received before this call.

    Requests that arrive meanwhile are not waited for, so a constant load does not delay it.

    Args:
        store: The served store.
        path: Its path.
        seconds: Longest wait without any progress.

    Raises:
        StoreError: If nothing is stored for that time.
    """
    folder = spool_folder(path)
    # Not until a time: the clock may be set back, and then what waits seems to come later than now.
    end = _end(folder)
    progress = ProgressWait(path, seconds, "to store what it has received")
    # The end now is earlier if a write failed that was in progress before.
    while (position := spool_position(store)) < min(end, _end(folder)):
        progress.wait(position)


def _end(folder: Path) -> Position:
    """Return the end of a spool, which a process may be writing to."""
    segments = segments_of(folder)
    with suppress(FileNotFoundError):  # the loader has just stored all of it, and deleted it
        return Position(segments[-1], segment_size(folder, segments[-1])) if segments else NOTHING
    return NOTHING


def wait_until_derived(store: Rows, path: Path, seconds: float = STALL_SECONDS) -> None:
    """Wait until the running ingester has stored and derived everything that it received.

    Args:
        store: The served store.
        path: Its path.
        seconds: Longest wait without any progress.

    Raises:
        StoreError: If nothing is stored or derived for that time.
    """
    progress = ProgressWait(path, seconds, "to store and derive what it has received")
    while True:
        position, stale = spool_position(store), None
        # Asked only once everything is stored: each question costs the ingester CPU.
        if not backlog(spool_folder(path), position):
            stale = store.rows("SELECT count(*) AS n FROM stale")[0]["n"]
            if not stale:
                return
        progress.wait((position, stale))


@dataclass(slots=True)
class ProgressWait:
    """A wait for an ingester: it says once what it waits for, and ends if nothing changes."""

    path: Path
    seconds: float
    """Longest wait in which nothing changes."""
    what: str
    _seen: object = None
    _since: float = field(default_factory=time.monotonic)
    _has_said: bool = False
    _pause: float = LOOK_SECONDS

    def wait(self, seen: object) -> None:
        """Wait a moment.

        Args:
            seen: How far the ingester is; if it differs from the last call, the wait starts again.

        Raises:
            StoreError: If nothing has changed for too long.
        """
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        look = f"To see why: {next_command('lightning-ingest check', self.path)}"
        if now - self._since > self.seconds:
            raise StoreError(
                f"lightning-ingest, which serves '{self.path}', made no progress in "
                f"{self.seconds:g} seconds, while this command waited for {self.what}. Nothing is "
                f"lost. {look}"
            )
        if now - self._since > SAY_AFTER_SECONDS and not self._has_said:
            self._has_said = True
            sys.stderr.write(
                f"Waiting for the lightning-ingest that serves '{self.path}' {self.what}, at most "
                f"{self.seconds:g} seconds without progress. {look}\n"
            )
        time.sleep(self._pause)
        self._pause = min(1.5 * self._pause, LONGEST_LOOK_SECONDS)
