"""Between which times the keys of `trace_keys` were written, so that few of its rows are searched.

A key is a hash, so a search for one reads the keys of all traces. Most keys of new traces are new,
and the traces that share one mostly came shortly before. So this process keeps the keys in parts,
in the order in which they were written: of each part the times of its first and last key, and a
Bloom filter of 4 bytes a key. A search then reads only the parts that may have one of the keys,
which DuckDB finds by `added_at`.

It is valid only while this process is the only one that derives, as `RecentTraces` is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from otel_lightning.collector.derive.batches.tied_keys import Keys, numbers
from otel_lightning.collector.store import Sql, Store
from otel_lightning.collector.store.deduplication.bloom_filter import BloomFilter

KEYS_A_PART = 1 << 19
"""Number of keys of a part: its filter takes 2 MB, and DuckDB searches it in about 10 ms."""
PROBES = 12
"""Probes of a filter: one search asks it for thousands of keys, and one false positive is enough to
search the part in vain."""
FULL_SEARCHES = 16
"""Number of searches of the whole table before the filters are made, which takes as long."""
EVERYWHERE = Sql("TRUE")
"""The condition that searches the whole table."""
UNTIMED = Sql("added_at IS NULL")
"""The condition of the keys that were written before their times were."""


@dataclass(slots=True)
class _Part:
    """Some keys, and the times between which they were written, in Unix nanoseconds."""

    held: BloomFilter
    first_ns: int | None = None
    last_ns: int | None = None
    has_untimed: bool = False

    def add(self, keys: Keys, first_ns: int | None, last_ns: int | None) -> None:
        """Add keys that were written between two times, or at unknown times."""
        self.held.add(keys)
        if first_ns is None or last_ns is None:
            return
        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)


class KeyRanges:
    """The parts of `trace_keys`."""

    def __init__(self, keys_a_part: int = KEYS_A_PART, full_searches: int = FULL_SEARCHES) -> None:
        """Begin without filters: the first searches read the whole table.

        Args:
            keys_a_part: Number of keys of a part.
            full_searches: Number of searches before the filters are made.
        """
        self._keys_a_part, self._full_searches = keys_a_part, full_searches
        self._searches = 0
        self._parts: list[_Part] | None = None

    def __len__(self) -> int:
        """Return the number of parts that have a filter."""
        return len(self._parts or ())

    def conditions(self, store: Store, keys: Keys) -> list[Sql]:
        """Return conditions that find all rows with some keys; no row meets two of them.

        Args:
            store: A direct store.
            keys: The keys to find, shape [N].

        Returns:
            The conditions; none if no row has any of these keys.
        """
        self._searches += 1
        if self._parts is None:
            if self._searches <= self._full_searches:
                return [EVERYWHERE]
            self._parts = list(_read(store, self._keys_a_part))
        parts = [part for part in self._parts if part.held.may_hold(keys).any()]
        if not parts:
            return []
        times = [
            (part.first_ns, part.last_ns)
            for part in parts
            if part.first_ns is not None and part.last_ns is not None
        ]
        conditions = [_between(*one) for one in _merged(times)]
        return [*conditions, UNTIMED] if any(part.has_untimed for part in parts) else conditions

    def wrote(self, store: Store, keys: Keys, now_ns: int) -> None:
        """Record that keys, shape [N], were written at a time, Unix nanoseconds."""
        parts = self._parts
        if parts is None:
            return
        if not parts or parts[-1].held.is_full:
            # Keys are also deleted, by retention or when their trace is derived again.
            if (len(parts) - 1) * self._keys_a_part > 2 * store.count("trace_keys"):
                self.clear()
                return
            parts.append(_Part(_filter(max(self._keys_a_part, len(keys)))))
        # A trace that grows writes its keys again and again: they must not fill the filter.
        parts[-1].add(keys[~parts[-1].held.may_hold(keys)], now_ns, now_ns)

    def clear(self) -> None:
        """Forget all keys: the next searches read the whole table."""
        self._parts, self._searches = None, 0


def _filter(capacity: int) -> BloomFilter:
    return BloomFilter(capacity, PROBES)


def _read(store: Store, keys_a_part: int) -> Iterator[_Part]:
    """Read all stored keys, in the order in which they were written."""
    # Not by row ids: those of rows that were not committed yet begin at 2^60.
    select = "SELECT key, epoch_ns(added_at) AS at FROM trace_keys"
    for rows in store.stream(select, keys_a_part):
        times = pc.min_max(rows["at"]).as_py()
        part = _Part(_filter(keys_a_part), has_untimed=bool(rows["at"].null_count))
        part.add(numbers(rows["key"]), times["min"], times["max"])
        yield part


def _merged(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge spans of time that overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(times):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def _between(first_ns: int, last_ns: int) -> Sql:
    return Sql(f"added_at BETWEEN make_timestamp_ns({first_ns}) AND make_timestamp_ns({last_ns})")
