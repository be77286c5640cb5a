"""Find duplicates: a span or log record is stored once, even if it is received several times.

A search for every id in the whole table becomes slower as the table grows. So a Bloom filter over
the stored ids selects the possible duplicates first; it is rarely wrong. Only these are searched in
the table. The first search reads only spans in the same range of start times, and the second one,
for traces that came shortly before, only what was received since: DuckDB finds these rows without
reading the other blocks.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from otel_lightning.collector.store.connection import Store
from otel_lightning.collector.store.deduplication.bloom_filter import BloomFilter
from otel_lightning.collector.store.deduplication.kept_filters import LEAST_IDS, Filters
from otel_lightning.collector.store.sql_text import Sql, statement

logger = logging.getLogger(__name__)

IDS = {"spans": ("trace_id", "span_id"), "logs": ("log_id",)}
TRACES = "traces"
"""Name of the filter of the trace ids of both tables."""
COMPARED = [
    *IDS["spans"],
    *("name", "parent_span_id", "start_time", "end_time", "status_code", "attributes"),
]
"""Columns that distinguish a span that was sent again as it was from one that differs."""
LEAST_ROWS, ROWS_AT_ONCE = 1 << 20, 1 << 17
EVERYWHERE = Sql("TRUE")
"""The condition that searches a whole table."""


class Differing(NamedTuple):
    """Spans whose ids are stored, with other content."""

    later: pa.Table
    """Later states of stored spans, each span once: they take their places."""
    other: pa.Table
    """Other spans, which are not stored."""


class SeenIds:
    """Ids of stored rows, as Bloom filters: new rows are recognised without reading the table.

    Valid only while this process is the only one that writes the store. After a transaction that
    was undone it holds ids that the store lacks: that costs a search for each, and no row.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._filters: Filters = {}
        self.to_read = 0
        """Number of stored rows whose ids are still read now: nothing is stored meanwhile."""
        self.repeated = 0
        """Number of spans that were not stored, because other spans have their ids, since start."""
        self.may_be_kept = True
        """Whether the filters may be written to disk: not with bits of ids that were erased."""

    @property
    def filters(self) -> Mapping[str, list[BloomFilter]]:
        """The filters to keep for the next process, by table."""
        return self._filters if self.may_be_kept else {}

    def restore(self, filters: Mapping[str, list[BloomFilter]]) -> None:
        """Take over filters of all stored ids, instead of building them from the tables."""
        self._filters = {**filters}

    def unknown(
        self,
        table: str,
        rows: pa.Table,
        received_since: Callable[[Sequence[str]], Sql] = lambda _: EVERYWHERE,
    ) -> pa.Table:
        """Return the rows that `table` lacks, without duplicates among them, and add their ids.

        Args:
            table: `spans` or `logs`.
            rows: The rows.
            received_since: Takes trace ids and returns a condition that all stored rows of these
                traces meet, so that a search for one of them need not read the whole table.
        """
        # Before the rows are inserted: it is filled with the traces of the store.
        self._filters_of(TRACES)
        keys = self._keys(table, rows.select(IDS[table]))
        if _has_repeated(keys):
            select = statement(__package__, "distinct_ids", ids=_ids(table))
            positions = self._pick(select, table, rows, np.arange(len(rows)))
            rows, keys = rows.take(positions), keys[positions]
        filters = self._filters_of(table)
        may_be_there = _may_hold(filters, keys)
        if table == "spans" and may_be_there.any():
            # A span of a new trace is new. Both filters are rarely wrong about one span, and each
            # search for it would read the ids of the whole table.
            traces = self._keys(TRACES, rows.select(["trace_id"]))
            may_be_there &= _may_hold(self._filters_of(TRACES), traces)
        doubtful = np.flatnonzero(may_be_there)
        filters[-1].add(keys)
        present = doubtful
        if len(doubtful):
            traces = rows["trace_id"].take(doubtful).unique().to_pylist()
            present = self._present(table, rows, doubtful, received_since(traces))
        return rows.take(np.delete(np.arange(len(rows)), present)) if len(present) else rows

    def new_traces(self, trace_ids: pa.Array) -> pa.Array:
        """Tell for each trace id, shape [N], whether nothing of the trace was stored; add the ids.

        Call this once for each batch, after `unknown`. False may be wrong, but rarely; True is
        certain.

        Args:
            trace_ids: Distinct ids.
        """
        keys = self._keys(TRACES, pa.table({"trace_id": trace_ids.cast(pa.string())}))
        filters = self._filters_of(TRACES)
        may_be_stored = _may_hold(filters, keys)
        filters[-1].add(keys)
        return pa.array((~may_be_stored).tolist(), pa.bool_())  # see `_has_repeated`

    def differing(self, rows: pa.Table) -> "Differing":
        """Return the spans of a batch that were not stored, and differ from what is stored.

        Some senders send a span several times while it runs, each time with more of it. An agent
        that seeds Python's random numbers repeats the ids of its first run in the second.
        Call this after the new spans of the batch were inserted. The caller adds the number of
        other spans to `repeated` once the batch is committed.

        Args:
            rows: All spans of the batch.
        """
        compared = rows.select(COMPARED).append_column("position", pa.array(range(len(rows))))
        bounds = _range(rows)
        other = statement(__package__, "other_content", **bounds)
        differing = rows.take(_numbers(self._store.pick(compared, other)["position"]))
        if not len(differing):
            return Differing(differing, differing)
        numbered = differing.select([*COMPARED, "events"])
        numbered = numbered.append_column("position", pa.array(range(len(differing))))
        copies = self._store.pick(numbered, statement(__package__, "other_copies", **bounds))
        return Differing(
            *(differing.filter(pc.equal(copies["kind"], kind)) for kind in Differing._fields)
        )

    def replace(self, rows: pa.Table) -> None:
        """Store spans in the place of the stored ones with their ids and start times."""
        delete = statement(__package__, "delete_copies", **_range(rows))
        self._store.pick(rows.select([*IDS["spans"], "start_time"]), delete)
        self._store.insert("spans", rows)

    def _filters_of(self, table: str) -> list[BloomFilter]:
        """Return the filters of a table; when the last one is full, add one of twice its size."""
        filters = self._filters.setdefault(table, [])
        if not filters:
            filters.append(self._filled_traces() if table == TRACES else self._filled(table))
        if filters[-1].is_full:
            filters.append(BloomFilter(filters[-1].capacity * 2))
        return filters

    def _filled(self, table: str) -> BloomFilter:
        """Build a filter of all stored ids, with a capacity of 1.5 times their number."""
        query = f"SELECT count(*) AS n, coalesce(max(rowid), -1) AS last FROM {table}"
        stored = self._store.rows(query)[0]
        ids = BloomFilter(max(LEAST_ROWS, stored["n"] * 3 // 2))
        with self._reading(stored["n"]):
            for start in range(0, stored["last"] + 1, ROWS_AT_ONCE):
                keys = self._store.query(
                    f"SELECT hash({_ids(table)}) AS key FROM {table}"
                    f" WHERE rowid >= {start} AND rowid < {start + ROWS_AT_ONCE}"
                )
                ids.add(_numbers(keys["key"]))
                self.to_read = stored["n"] - ids.rows
        # The scan filled DuckDB's cache with ids that nobody needs again.
        self._store.release_memory()
        return ids

    def _filled_traces(self) -> BloomFilter:
        """Build the filter of the ids of all traces of spans and log records."""
        select = statement(__package__, "stored_traces")
        rows = sum(map(self._store.count, IDS))
        with self._reading(rows):
            if rows >= LEAST_IDS:
                logger.info(
                    "The ids of %d stored rows are read, because the process before did not keep "
                    "them: it was killed, or the store was restored. What is received meanwhile "
                    "waits on the spool.", rows,
                )  # fmt: skip
            stored = list(self._store.stream(select, ROWS_AT_ONCE))
            ids = BloomFilter(max(LEAST_ROWS, sum(map(len, stored)) * 3 // 2))
            for batch in stored:
                ids.add(batch["key"].to_numpy())
        self._store.release_memory()
        return ids

    @contextmanager
    def _reading(self, rows: int) -> Iterator[None]:
        """Set `to_read` to the number of rows whose ids the block reads, and to 0 after it."""
        self.to_read = rows
        try:
            yield
        finally:
            self.to_read = 0

    def _keys(self, table: str, ids: pa.Table) -> NDArray[np.uint64]:
        hashed = "trace_id" if table == TRACES else _ids(table)
        return _numbers(self._store.pick(ids, f"SELECT hash({hashed}) AS key FROM {{rows}}")["key"])

    def _present(
        self, table: str, rows: pa.Table, positions: NDArray[np.int64], since: Sql
    ) -> NDArray[np.int64]:
        """Return which of these rows a table has; search the most likely start times first."""
        absent = positions
        names = {"table": Sql(table), "same": Sql(_same(table))}
        for bounds in _bounds(table, rows, since):
            select = statement(__package__, "unknown_ids", **names, bounds=Sql(bounds))
            absent = self._pick(select, table, rows, absent)
        return np.setdiff1d(positions, absent)

    def _pick(
        self, select: str, table: str, rows: pa.Table, positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Run a SELECT over the ids of the rows at these positions and return positions."""
        ids = rows.select(IDS[table]).take(positions)
        numbered = ids.append_column("position", pa.array(positions, pa.int64()))
        return _numbers(self._store.pick(numbered, select)["position"])


def _may_hold(filters: Sequence[BloomFilter], keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    may_hold: NDArray[np.bool_] = np.any([each.may_hold(keys) for each in filters], axis=0)
    return may_hold


def _has_repeated(keys: NDArray[np.uint64]) -> bool:
    """Return whether two keys are equal.

    `np.unique`, and `pa.array` of numpy's arrays, would import `numpy.ma`: 0.02 CPU-seconds.
    """
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def _ids(table: str) -> Sql:
    return Sql(", ".join(IDS[table]))


def _same(table: str) -> str:
    return " AND ".join(f"t.{name} = b.{name}" for name in IDS[table])


def _bounds(table: str, rows: pa.Table, since: Sql) -> Sequence[str]:
    """Return the search conditions in order: a duplicate nearly always has the same start time."""
    if table != "spans":
        return (since,)
    times = rows["start_time"]
    ends = pc.min_max(times.cast(pa.int64())).as_py()
    if ends["min"] is None:
        return (since,)
    low, high = (f"make_timestamp_ns({ends[end]})" for end in ("min", "max"))
    return (f"{since} AND t.start_time BETWEEN {low} AND {high}", since)


def _range(rows: pa.Table) -> dict[str, int]:
    """Return the first and last start time of some spans, Unix nanoseconds."""
    times = pc.min_max(rows["start_time"].cast(pa.int64())).as_py()
    return {"low": times["min"] or 0, "high": times["max"] or 0}


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    values: NDArray[Any] = column.to_numpy()
    return values
