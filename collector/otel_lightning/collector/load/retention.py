"""Retention: delete whole traces, the oldest first, by age or when the store is too large.

The age of a trace counts from its last received span or log record. One transaction deletes its
spans, its logs and every row of any table that has its id. Log records without a trace, with the
rewards and arms that they state, and rejected rows are deleted by their own age. Runs and policies
are never deleted.
"""

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.load.trusted_clock import TrustedClock
from otel_lightning.collector.refresh.refresh import forget_kept
from otel_lightning.collector.refresh.rollouts import rollout_rows
from otel_lightning.collector.store import Store, StoreError, statement
from otel_lightning.collector.store.sql_text import quote_name
from otel_lightning.collector.store.tables_with import tables_with

logger = logging.getLogger(__name__)
FILL = 0.9  # share of the size limit that is kept, so that not every load has to delete
INTERVAL_SECONDS = 300.0  # between two runs
TEMPORARY = ("spared", "expired", "expired_logs", "expired_before", "gone_times", "shortened")
"""Tables of one deletion."""


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
        """Delete the traces that are too old, and the oldest ones while the store is too large.

        Args:
            spared: Ids of traces to leave for the next run, because worker processes derive them.
        """
        self._ran_at = time.monotonic()
        deleted = forget(self._store, self._settings, self._clock.now_ns(), spared)
        if deleted:
            logger.info("%d traces were deleted, as --retain or --max-size asks.", deleted)

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

    Raises:
        StoreError: If the store stays too large.
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
    """Delete the oldest traces of a store that is too large; return their number.

    Raises:
        StoreError: If it stays too large: what fills it is no old trace.
    """
    store.checkpoint()  # rows in the write-ahead log do not count as used bytes yet
    used = used_bytes(store)
    if used <= max_bytes:
        return 0
    apart = _sizes_apart(store)
    of_traces, room = used - sum(apart.values()), FILL * max_bytes - sum(apart.values())
    if room <= 0:
        largest = max(apart, key=lambda table: apart[table])
        raise StoreError(
            f"{_sizes(used, max_bytes)} Tables without traces use {sum(apart.values()):,} of them, "
            f"so no trace is deleted. Delete rows of the largest one, {largest}, or raise "
            "--max-size."
        )
    # Computed as if all records had the same size: the share of records to delete so that the file
    # uses FILL of its limit. If it is not enough, the next run deletes more.
    with _expired(store, spared, "expired_by_size", share=1 - room / of_traces) as found:
        _delete_expired(store)
    store.checkpoint()
    if not found.records and not spared:
        raise StoreError(
            f"{_sizes(used, max_bytes)} It has no old trace left: what was received last is not "
            "deleted. Raise --max-size."
        )
    return found.traces


def _sizes(used: int, max_bytes: int) -> str:
    return f"The store uses {used:,} bytes, more than the {max_bytes:,} of --max-size."


def _sizes_apart(store: Store) -> dict[str, int]:
    """Return the bytes of each table that has nothing of traces."""
    tables = store.rows(statement(__package__, "tables_apart"))
    names = [f"{quote_name(one['schema'])}.{quote_name(one['name'])}" for one in tables]
    return {
        name: int(store.column(statement(__package__, "size_of", table=name))[0]) for name in names
    }


def _forget_before(store: Store, cutoff_ns: int, spared: Collection[str]) -> int:
    before = store.query(statement(__package__, "any_before", cutoff=cutoff_ns))
    if not before["found"][0].as_py():
        return 0
    with _expired(store, spared, "expired_by_age", cutoff=cutoff_ns) as found:
        _delete_expired(store)
    return found.traces


class _Found(NamedTuple):
    """How much has expired."""

    traces: int
    records: int
    """Number of traces, and of log records without a trace."""


@contextmanager
def _expired(
    store: Store, spared: Collection[str], select: str, **limit: float
) -> Iterator[_Found]:
    """Find what has expired for the block, which deletes it in the same transaction.

    Args:
        store: A direct store.
        spared: Ids of traces to leave.
        select: Name of the statement that fills the tables `expired` and `expired_logs`.
        limit: Its parameter.
    """
    with store.transaction():
        store.execute("CREATE TEMP TABLE spared (trace_id VARCHAR)")
        store.insert("spared", pa.table({"trace_id": pa.array(spared, pa.string())}))
        store.execute(statement(__package__, select, **limit))
        traces = store.count("expired")
        yield _Found(traces, traces + store.count("expired_logs"))
        store.execute("".join(f"DROP TABLE {table};" for table in TEMPORARY))
    forget_kept(store)


def _delete_expired(store: Store) -> None:
    """Delete the rows of what has expired, in the caller's transaction."""
    store.execute(statement(__package__, "shortened"))
    for table in tables_with(store, "trace_id"):
        store.execute(f"DELETE FROM {table} WHERE trace_id IN (FROM expired)")
    store.execute(statement(__package__, "delete_without_trace"))
    # A rollout may have several traces. If only some are deleted, its row is computed from the
    # others.
    rollout_rows.recompute(store, "shortened")
