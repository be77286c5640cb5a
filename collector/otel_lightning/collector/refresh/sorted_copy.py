"""A sorted copy of the spans of many stale traces, so that each trace is read by itself.

A conversation that lasts as long as the store has a few spans in each part of the table. DuckDB
unpacks whole blocks of rows, so reading a few such conversations unpacks the whole table. Copying
the spans once, sorted by trace, is cheaper than reading the table again for each refresh.
"""

from otel_lightning.collector.store import SKIPPED_TO, Sql, Store, statement

AT_ONCE = 8
"""Number of refreshes that one copy serves. A copied span takes about 2 KB of disk."""
BLOCK = 2048
"""Number of rows that DuckDB unpacks together."""
SCATTERED = 4
"""A copy is made if reading unpacks more than this many times the rows that are needed."""


def source(store: Store, spans_at_once: int, received: Sql) -> str:
    """Return the table to read the traces of `frontier` from: `spans`, or a sorted copy.

    Args:
        store: A direct store.
        spans_at_once: About how many spans one refresh reads.
        received: A condition that all spans of these traces meet.
    """
    many = statement(__package__, "copy_is_many", most=SKIPPED_TO)
    scattered = statement(
        __package__, "copy_is_scattered", block=BLOCK, scattered=SCATTERED, received=received
    )
    if not len(store.query(many)) or not len(store.query(scattered)):
        return "spans"
    store.execute("CREATE TEMP TABLE IF NOT EXISTS gathered AS FROM spans LIMIT 0")
    lacks = statement(__package__, "copy_lacks")
    if len(store.query(lacks)):
        store.execute(statement(__package__, "copy_sorted", limit=AT_ONCE * spans_at_once))
    # A trace may still be missing, if it comes after the limit of the copy.
    return "spans" if len(store.query(lacks)) else "gathered"


def forget(store: Store) -> None:
    """Drop the copy, because it is used up or because new spans are missing in it."""
    store.execute("DROP TABLE IF EXISTS temp.gathered")
