"""Stale traces and log records: those that were stored, and are not derived yet."""

from collections.abc import Iterable
from typing import NamedTuple

from otel_lightning.collector.derive.tables import PER_TRACE
from otel_lightning.collector.store import Sql, Store, statement

NONE = Sql("(SELECT '' WHERE false)")
"""Ids for `NOT IN` that exclude nothing: with an empty list SQL finds no row."""


class Stale(NamedTuple):
    """The traces and log records that are not derived yet."""

    new_ids: int
    """Number of traces and log records that were received since a given time."""
    new_ns: int | None
    """When the first of those was received, Unix nanoseconds."""
    oldest_ns: int | None
    """When the first of all was received, Unix nanoseconds."""
    put_off_ns: int | None
    """When the first of those that were put off was received; they count nowhere else."""
    has_undated: bool
    """Whether some have no time, because nobody was to derive them when they were stored."""


def find_stale(store: Store, since_ns: int = 0, waiting: Iterable[str] = ()) -> Stale:
    """Return the number of stale traces and log records, and since when they are stale.

    Args:
        store: Any store.
        since_ns: Traces and log records that were received since then are new.
        waiting: Ids of the rollouts that were put off, which only `put_off_ns` tells.
    """
    select = statement(__package__, "find_stale", since=since_ns, waiting=[*waiting] or NONE)
    return Stale(**store.rows(select)[0])


def mark_underived(store: Store, seconds: float = 60.0) -> int:
    """Mark the traces that were received last as stale if they have neither rows nor a mark.

    Call it at the start. DuckDB 1.5.5 rarely loses the newest rows of `stale` if it is killed right
    after a checkpoint: twice in some 250 kills. A backup is made then, so it may lack them, too.

    Args:
        store: A direct store.
        seconds: Traces with a span that was received so long before the last one, or later.

    Returns:
        Number of these traces. Some may have spans of which no rows are derived.
    """
    of_recent = (
        f"UNION ALL SELECT trace_id FROM {table} WHERE trace_id IN (FROM recent)"
        for table in PER_TRACE
    )
    and_derived = Sql(" ".join(of_recent))
    with store.transaction():
        marked = statement(__package__, "mark_underived", seconds=seconds, and_derived=and_derived)
        return len(store.column(marked))
