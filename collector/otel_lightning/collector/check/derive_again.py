"""Derive the stored spans and logs again in a scratch store, and compare the derived tables.

The rows of a trace depend on the traces that share a key with it, so a sample includes those too.
Traces that were received since the check began, or that are stale, are not compared; nor are the
traces that share a key with them.
"""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.store import Store, open_store, quote_literal

COMPARED = (
    "llm_calls",
    "tool_calls",
    "agent_runs",
    "retrievals",
    "arms",
    "reward_events",
    "unread_spans",
)
WITH_LOOSE_LOGS = "rollout_rows"
"""Rewards without a trace change its rows, so it is compared only if all log records are."""
ROWS_AT_ONCE = 50_000
SAMPLE = """
    SELECT trace_id FROM (SELECT DISTINCT trace_id FROM spans) ORDER BY random() LIMIT {sample}
"""
NEWEST = """
    SELECT coalesce(epoch_ns(max(received_at)), 0) AS newest FROM (
        SELECT max(received_at) AS received_at FROM spans
        UNION ALL SELECT max(received_at) FROM logs)
"""
UNSETTLED = """
    SELECT id FROM stale WHERE kind = 'trace'
    UNION SELECT trace_id FROM spans WHERE received_at > {since}
    UNION SELECT trace_id FROM logs WHERE trace_id IS NOT NULL AND received_at > {since}
"""
TIED = """
    SELECT DISTINCT trace_id FROM trace_keys
    WHERE key IN (SELECT key FROM trace_keys WHERE trace_id IN ({ids}))
"""
PRINTS = """
    SELECT coalesce(trace_id, '') AS trace_id, count(*) AS "rows",
        sum(hash(t)::HUGEINT)::VARCHAR AS print
    FROM {table} t WHERE {which} GROUP BY ALL
"""
LOOSE = """
    SELECT id FROM stale WHERE kind = 'log'
    UNION SELECT log_id FROM logs WHERE trace_id IS NULL AND received_at > {since}
"""
NO_TRACE = ""


class Compared(NamedTuple):
    """The result of comparing one derived table."""

    table: str
    traces: int
    different: list[str]
    """Ids of the traces whose rows differ; `NO_TRACE` stands for the rows without a trace id."""


def compare(store: Store, sample: int | None = None) -> list[Compared]:
    """Derive again and compare table by table.

    Args:
        store: A direct or served store.
        sample: Number of traces to compare, chosen at random; None for all.
    """
    since = f"make_timestamp_ns({store.query(NEWEST)['newest'][0].as_py()})"
    chosen = None
    if sample is not None:
        chosen = _tied(store, _texts(store, SAMPLE.format(sample=sample)))
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "again") as scratch:
        for table in ("spans", "logs"):
            for rows in _copies(store, table, chosen):
                scratch.insert(table, rows)
        rebuild(scratch)
        while refresh(scratch):
            pass
        again = {table: _prints(scratch, table) for table in (*COMPARED, WITH_LOOSE_LOGS)}
        traces = set(_texts(scratch, "SELECT DISTINCT trace_id FROM spans"))
    stored = {table: _prints(store, table, chosen) for table in again}
    traces -= _tied(store, _texts(store, UNSETTLED.format(since=since)))
    if sample is None and not _texts(store, LOOSE.format(since=since)):
        traces.add(NO_TRACE)
    compared = (*COMPARED, WITH_LOOSE_LOGS) if NO_TRACE in traces else COMPARED
    return [_compared(table, traces, stored[table], again[table]) for table in compared]


def _copies(store: Store, table: str, chosen: set[str] | None) -> Iterator[pa.Table]:
    """Yield the rows to copy, in batches, in the order of the table."""
    last = store.query(f"SELECT coalesce(max(rowid), -1) AS at FROM {table}")["at"][0].as_py()
    for start in range(0, last + 1, ROWS_AT_ONCE):
        end = start + ROWS_AT_ONCE
        yield store.query(
            f"SELECT * EXCLUDE (resource) FROM {table}"
            f" WHERE rowid >= {start} AND rowid < {end} AND {_among(chosen)}"
            f" ORDER BY rowid"
        )


def _tied(store: Store, traces: Iterable[str]) -> set[str]:
    """Return these traces and all traces that a chain of shared keys connects to them."""
    found, new = set[str](), set(traces)
    while new:
        found |= new
        new = set(_texts(store, TIED.format(ids=_quoted(new)))) - found
    return found


def _among(chosen: set[str] | None) -> str:
    return "TRUE" if chosen is None else f"trace_id IN ({_quoted(chosen)})"


def _prints(store: Store, table: str, chosen: set[str] | None = None) -> dict[str, tuple[int, str]]:
    """Return for each trace its number of rows and their checksum, which ignores their order."""
    rows = store.query(PRINTS.format(table=table, which=_among(chosen))).to_pylist()
    return {row["trace_id"]: (row["rows"], row["print"]) for row in rows}


def _compared(
    table: str,
    traces: set[str],
    stored: dict[str, tuple[int, str]],
    again: dict[str, tuple[int, str]],
) -> Compared:
    different = sorted(one for one in traces if stored.get(one) != again.get(one))
    return Compared(table, len(traces - {NO_TRACE}), different)


def _texts(store: Store, query: str) -> list[str]:
    return [str(value) for value in store.query(query).column(0).to_pylist()]


def _quoted(texts: Iterable[str]) -> str:
    return ",".join(map(quote_literal, sorted(texts))) or "''"
