"""Retention: delete whole traces, the oldest first, by age or when the store is too large.

The age of a trace counts from its last received span or log record. One transaction deletes its
spans, its logs and every row of any table that has its id. Log records and rewards without a trace,
and rejected rows, are deleted by their own age. Runs and policies are never deleted.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pyarrow as pa

from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.load.trusted_clock import TrustedClock
from otel_lightning.collector.refresh.refresh import forget_kept
from otel_lightning.collector.refresh.rollouts import rollout_rows
from otel_lightning.collector.store import Store, statement
from otel_lightning.collector.store.tables_with import tables_with

FILL = 0.9  # share of the size limit that is kept, so that not every load has to delete
INTERVAL_SECONDS = 300.0  # between two runs


class Retention:
    """Deletes from time to time what retention no longer keeps."""

    def __init__(self, store: Store, settings: LoaderSettings, clock: TrustedClock) -> None:
        """Prepare; the first run is due at once.

        Args:
            store: A direct store.
            settings: The age and the size limit.
            clock: A clock that detects jumps.
        """
        self._store, self._settings, self._clock = store, settings, clock
        self._ran_at = -INTERVAL_SECONDS
        self._is_paused = False

    @property
    def is_due(self) -> bool:
        """Whether `INTERVAL_SECONDS` have passed since the last run."""
        return not self._is_paused and time.monotonic() - self._ran_at >= INTERVAL_SECONDS

    def run(self, spared: Collection[str]) -> None:
        """Delete what is too old or too much.

        Args:
            spared: Ids of traces to leave for the next run, because worker processes derive them.
        """
        self._ran_at = time.monotonic()
        forget(self._store, self._settings, self._clock.now_ns(), spared)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Delete nothing for the block."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False


def forget(
    store: Store, settings: LoaderSettings, now_ns: int | None, spared: Collection[str] = ()
) -> int:
    """Delete the traces that are too old, then the oldest ones while the store is too large.

    Args:
        store: A direct store.
        settings: The age and the size limit.
        now_ns: Unix nanoseconds; None if the clock is not trusted: then no trace expires by age.
        spared: Ids of traces to leave for the next run, because worker processes derive them now.

    Returns:
        The number of deleted traces.
    """
    deleted = 0
    if settings.retain_seconds is not None and now_ns is not None:
        deleted += _forget_before(store, now_ns - int(settings.retain_seconds * 1e9), spared)
    if settings.max_bytes is not None:
        deleted += _forget_oldest(store, settings.max_bytes, spared)
    return deleted


def newest_received(store: Store) -> int | None:
    """Return when the newest stored row was received, in Unix nanoseconds; None if none is."""
    rows = store.query(statement(__package__, "newest_received"))
    newest: int | None = rows["newest"][0].as_py()
    return newest


def used_bytes(store: Store) -> int:
    """Return the number of used bytes of the file, as of the last checkpoint.

    The file itself does not shrink after a deletion: DuckDB reuses the free blocks first.
    """
    return int(store.query(statement(__package__, "used_bytes"))["used"][0].as_py())


def _forget_oldest(store: Store, max_bytes: int, spared: Collection[str]) -> int:
    store.checkpoint()  # rows in the write-ahead log do not count as used bytes yet
    used = used_bytes(store)
    if used <= max_bytes:
        return 0
    # Computed as if all spans had the same size: the share of spans to delete so that the file uses
    # FILL of its limit. If it is not enough, the next run deletes more.
    share = 1 - FILL * max_bytes / used
    oldest = store.query(statement(__package__, "oldest_share", share=share))
    cutoff = oldest["cutoff"][0].as_py()
    # `expired` compares with <, so + 1 includes what was received exactly at the cutoff.
    deleted = _forget_before(store, cutoff + 1, spared) if cutoff is not None else 0
    store.checkpoint()
    return deleted


def _forget_before(store: Store, cutoff_ns: int, spared: Collection[str]) -> int:
    before = store.query(statement(__package__, "any_before", cutoff=cutoff_ns))
    if not before["found"][0].as_py():
        return 0
    with store.transaction():
        store.execute("CREATE TEMP TABLE spared (trace_id VARCHAR)")
        store.insert("spared", pa.table({"trace_id": pa.array(spared, pa.string())}))
        store.execute(statement(__package__, "expired", cutoff=cutoff_ns))
        deleted = store.count("expired")
        for table in tables_with(store, "trace_id"):
            store.execute(f"DELETE FROM {table} WHERE trace_id IN (FROM expired)")
        store.execute(statement(__package__, "delete_without_trace", cutoff=cutoff_ns))
        # A rollout may have several traces. If only some are deleted, its row is computed from the
        # others.
        rollout_rows.recompute(store, "shortened")
        store.execute("DROP TABLE expired; DROP TABLE shortened; DROP TABLE spared")
    forget_kept(store)
    return deleted
