"""A sorted copy of the spans of many stale traces, so that each trace is read by itself.

A conversation that lasts as long as the store has a few spans in each part of the table. DuckDB
unpacks whole blocks of rows, so reading a few such conversations unpacks the whole table. Copying
the spans once, sorted by trace, is cheaper than reading the table again for each refresh.

Traces that came lately lie close together, so they are read from the table. Without that rule each
refresh of a server that lags would copy spans: making a copy searches the whole table. Also while
spans of old traces arrive all the time, a copy serves one refresh or two before it is out of date.
Then it costs more than it saves, so the next refreshes read the table.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from otel_lightning.collector.refresh.time_ranges.recent_traces import EVERYWHERE
from otel_lightning.collector.store import SKIPPED_TO, Sql, Store, statement

AT_ONCE = 8
"""Number of refreshes that one copy serves. A copied span takes about 2 KB of disk."""
BLOCK = 2048
"""Number of rows that DuckDB unpacks together."""
SCATTERED = 4
"""A copy is made if reading unpacks more than this many times the rows that are needed."""
LEAST_SERVED = 3
"""A copy that served fewer refreshes before new spans came was in vain."""


@dataclass(slots=True)
class _Uses:
    """How much the sorted copies of one store were used."""

    served: int = 0
    """Number of refreshes that read the present copy."""
    rests: int = 0
    """Number of refreshes to go without a copy, because the last one was in vain."""
    has_table: bool = False
    """Whether the table of the copy was ever created; it may have been dropped since."""


_USES: WeakKeyDictionary[Store, _Uses] = WeakKeyDictionary()


def source(store: Store, spans_at_once: int, received: Sql) -> str:
    """Return the table to read the traces of `chosen` from: `spans`, or a sorted copy.

    Args:
        store: A direct store.
        spans_at_once: About how many spans one refresh reads.
        received: A condition that all spans of these traces meet; `EVERYWHERE` if it is not known
            when they came.
    """
    if received != EVERYWHERE:
        return "spans"
    is_many = statement(__package__, "copy_is_many", most=SKIPPED_TO)
    scattered = statement(__package__, "copy_is_scattered", block=BLOCK, scattered=SCATTERED)
    if not len(store.query(is_many)) or not len(store.query(scattered)):
        return "spans"
    uses = _USES.setdefault(store, _Uses())
    if uses.rests:
        uses.rests -= 1
        return "spans"
    uses.has_table = True
    store.execute("CREATE TEMP TABLE IF NOT EXISTS gathered AS FROM spans LIMIT 0")
    lacks = statement(__package__, "copy_lacks")
    if len(store.query(lacks)):
        store.execute(statement(__package__, "copy_sorted", limit=AT_ONCE * spans_at_once))
        uses.served = 0
    # A trace may still be missing, if it comes after the limit of the copy.
    if len(store.query(lacks)):
        return "spans"
    uses.served += 1
    return "gathered"


def forget(store: Store) -> None:
    """Drop the copy of a direct store, because nothing is left to derive."""
    _drop(store, _USES.setdefault(store, _Uses()))


def forget_outdated(store: Store) -> None:
    """Drop the copy of a direct store, because spans have come that it lacks."""
    uses = _USES.setdefault(store, _Uses())
    if 0 < uses.served < LEAST_SERVED:
        uses.rests = AT_ONCE
    _drop(store, uses)


def _drop(store: Store, uses: _Uses) -> None:
    uses.served = 0
    if uses.has_table:
        store.execute("DROP TABLE IF EXISTS temp.gathered")
