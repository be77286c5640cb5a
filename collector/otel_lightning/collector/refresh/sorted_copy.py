"""Copies of spans that lie far apart, side by side, for as long as many wait to be derived.

Conversations that go on through the whole store have a few spans in each part of it, so reading
some conversations unpacks all of it. A copy that is sorted once lets each be read for itself.
"""

from otel_lightning.collector.store import SKIPPED_TO, Store

AT_ONCE = 8
"""So many refreshes are gathered for: the copy takes 2 KB of disk a span."""
BLOCK = 2048  # rows that are unpacked together
SCATTERED = 4
"""How many times the rows that are wanted may be unpacked before a copy is cheaper."""

MANY = f"SELECT 1 FROM stale WHERE id IN (FROM frontier) HAVING sum(spans) > {SKIPPED_TO}"
UNPACKED = f"""
    SELECT 1 FROM spans WHERE trace_id IN (FROM frontier)
    HAVING {BLOCK} * count(DISTINCT rowid // {BLOCK}) > {SCATTERED} * (count(*) + {BLOCK})
"""
GATHER = """
    CREATE OR REPLACE TEMP TABLE gathered AS
    SELECT trace_id, span_id, parent_span_id, name, kind, start_time, end_time, status_code,
        status_message, scope_name, scope_version, resource_json, attributes, events, links
    FROM spans JOIN (
        SELECT id, first_time, near FROM stale WHERE kind = 'trace'
        QUALIFY sum(spans) OVER (ORDER BY first_time, near NULLS LAST, id) <= {limit}
    ) chosen ON chosen.id = spans.trace_id
    ORDER BY chosen.first_time, chosen.near, trace_id
"""
MISSING = """
    SELECT 1 FROM frontier WHERE trace_id NOT IN (SELECT trace_id FROM gathered) LIMIT 1
"""
NEW = "SELECT 1 FROM stale WHERE kind = 'trace' AND spans IS NULL LIMIT 1"


def source(store: Store, spans_at_once: int) -> str:
    """Return the table from which to read the traces of `frontier`: `spans`, or a sorted copy."""
    if not len(store.query(MANY)) or not len(store.query(UNPACKED)):
        return "spans"
    store.execute("CREATE TEMP TABLE IF NOT EXISTS gathered AS FROM spans LIMIT 0")
    if len(store.query(MISSING)):
        store.execute(GATHER.format(limit=AT_ONCE * spans_at_once))
    return "spans" if len(store.query(MISSING)) else "gathered"


def forget(store: Store) -> None:
    """Drop the copy: it is used up, or spans came that it lacks."""
    store.execute("DROP TABLE IF EXISTS temp.gathered")
