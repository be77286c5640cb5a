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

from otel_lightning.collector.derive.tables import PER_TRACE
from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.store import Sql, Store, open_store, statement
from otel_lightning.collector.store.sql_text import Value, literal

WITH_LOGS = "rollout_rows"
"""Rewards without a trace id change its rows, so it is compared only if no such reward is new."""
ROWS_AT_ONCE = 50_000
NO_TRACE = ""
"""The id under which rows without a trace id are compared."""


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
        sample: Number of traces to compare, chosen at random, and as many of those without derived
            rows; None for all.
    """
    # The check may run while a process stores. What it stores after this moment may be copied or
    # not, so it is not compared.
    newest = store.query(statement(__package__, "again_newest"))["newest"][0].as_py()
    since = Sql(f"make_timestamp_ns({newest})")
    chosen = None
    if sample is not None:
        chosen = _connected(store, _texts(store, "again_sample", sample=sample))
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "again") as scratch:
        for table in ("spans", "logs"):
            for rows in _copies(store, table, chosen):
                scratch.insert(table, rows)
        rebuild(scratch)
        while refresh(scratch):
            pass
        derived = {table: _checksums(scratch, table) for table in (*PER_TRACE, WITH_LOGS)}
        traces = set(_texts(scratch, "again_traces"))
    # Asked before the checksums for the traces that wait to be derived, and after them for those
    # that grew meanwhile: neither have the rows yet that deriving again gave.
    changing = _texts(store, "again_changing_traces", since=since)
    stored = {table: _checksums(store, table, chosen) for table in derived}
    changing += _texts(store, "again_changing_traces", since=since)
    traces -= _connected(store, changing)
    if sample is None and not _texts(store, "again_changing_logs", since=since):
        traces.add(NO_TRACE)
    compared = (*PER_TRACE, WITH_LOGS) if NO_TRACE in traces else PER_TRACE
    return [_compared(table, traces, stored[table], derived[table]) for table in compared]


def _copies(store: Store, table: str, chosen: set[str] | None) -> Iterator[pa.Table]:
    """Yield the rows to copy, in batches, in the order of the table."""
    last = store.query(f"SELECT coalesce(max(rowid), -1) AS at FROM {table}")["at"][0].as_py()
    for start in range(0, last + 1, ROWS_AT_ONCE):
        query = statement(
            __package__,
            "again_rows",
            table=Sql(table),
            start=start,
            end=start + ROWS_AT_ONCE,
            condition=_condition(chosen),
        )
        yield store.query(query)


def _connected(store: Store, traces: Iterable[str]) -> set[str]:
    """Return these traces and all traces that a chain of shared keys connects to them."""
    # Breadth-first: each round asks for the neighbours of the traces that the round before found.
    connected, new = set[str](), set(traces)
    while new:
        connected |= new
        new = set(_texts(store, "again_connected", traces=sorted(new))) - connected
    return connected


def _condition(chosen: set[str] | None) -> Sql:
    """Write the condition that a row's trace is chosen; None chooses all."""
    return Sql("TRUE" if chosen is None else f"trace_id IN {literal(sorted(chosen))}")


def _checksums(
    store: Store, table: str, chosen: set[str] | None = None
) -> dict[str, tuple[int, str]]:
    """Return for each trace its number of rows and their checksum, which ignores their order."""
    query = statement(
        __package__, "again_checksums", table=Sql(table), condition=_condition(chosen)
    )
    rows = store.rows(query)
    return {row["trace_id"]: (row["rows"], row["checksum"]) for row in rows}


def _compared(
    table: str,
    traces: set[str],
    stored: dict[str, tuple[int, str]],
    derived: dict[str, tuple[int, str]],
) -> Compared:
    differing = sorted(one for one in traces if stored.get(one) != derived.get(one))
    return Compared(table, len(traces - {NO_TRACE}), differing)


def _texts(store: Store, name: str, **values: Value) -> list[str]:
    """Run a statement and return its first column."""
    return store.column(statement(__package__, name, **values))
