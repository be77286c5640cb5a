"""How far the spool of a store is stored.

A module of its own, since a client of a running ingester asks this and does not decode anything:
what decodes and derives takes 0.2 CPU-seconds to import.
"""

import time
from contextlib import suppress
from pathlib import Path

from otel_lightning.collector.spool import backlog, spool_folder
from otel_lightning.collector.spool_format import Position, scan
from otel_lightning.collector.store import Store

LOOK_SECONDS = 0.1


def spool_position(store: Store) -> Position:
    """Return the spool position up to which requests are stored."""
    rows = store.query("SELECT segment, byte_offset FROM spool_position").to_pylist()
    return Position(rows[0]["segment"], rows[0]["byte_offset"]) if rows else Position(1, 0)


def waiting(store: Store, path: Path) -> int:
    """Return the number of bytes in the spool of the store at `path` that are not stored yet."""
    return backlog(spool_folder(path), spool_position(store))


def oldest_waiting(store: Store, path: Path) -> int | None:
    """Return when the oldest request that is not stored yet was received, Unix nanoseconds."""
    folder, position = spool_folder(path), spool_position(store)
    with suppress(FileNotFoundError):  # the loader has just deleted the segment, or it is empty
        for record in scan(folder, position):
            return record.received_ns
    return None


def wait_until_stored(store: Store, path: Path) -> None:
    """Wait until the running ingester has stored what it had received before this call.

    What it receives meanwhile is not waited for, so a constant load does not hold it up.
    """
    now = time.time_ns()
    while (oldest := oldest_waiting(store, path)) is not None and oldest <= now:
        time.sleep(LOOK_SECONDS)


def wait_until_derived(store: Store, path: Path) -> None:
    """Wait until the running ingester has stored and derived everything that it received."""
    while waiting(store, path) or store.count("stale"):
        time.sleep(LOOK_SECONDS)
