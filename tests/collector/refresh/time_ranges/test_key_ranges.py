"""The search for keys reads few rows, and misses none."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.deliveries import TABLES, WITH_REWARD, deliver, tables

from otel_lightning.collector.load.batches import load
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.refresh.time_ranges.key_ranges import EVERYWHERE, KeyRanges, Keys
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.store import Store, open_store
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

TRACES, KEYS = 40, 300
Found = list[tuple[str, int]]


def keys_of(numbers: Sequence[int]) -> Keys:
    return np.array(numbers, np.uint64)


def search(store: Store, keys: Keys, where: str = "TRUE") -> Found:
    rows = store.rows(
        f"SELECT trace_id, key FROM trace_keys WHERE ({where})"
        f" AND key IN ({', '.join(map(str, keys))}) ORDER BY ALL"
    )
    return [(row["trace_id"], row["key"]) for row in rows]


def write(store: Store, trace: int, keys: Keys, now_ns: int | None) -> None:
    store.execute(f"DELETE FROM trace_keys WHERE trace_id = '{trace}'")
    times = pa.array([now_ns] * len(keys), pa.int64()).cast(pa.timestamp("ns"))
    names = pa.array([str(trace)] * len(keys))
    store.insert("trace_keys", pa.table({"trace_id": names, "key": keys, "added_at": times}))


@pytest.mark.parametrize("seed", range(5))
def test_a_search_finds_what_a_search_of_the_whole_table_finds(seed: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(seed)
    ranges, now_ns, skipped = KeyRanges(keys_a_part=16, full_searches=2), 10**18, 0
    with open_store(tmp_path / "t.duckdb") as store:
        for trace in range(5):  # written before their times were kept
            write(store, trace, np.unique(chance.integers(0, KEYS, 4, np.uint64)), None)
        for _ in range(250):
            now_ns += int(chance.choice([-50, 0, 1, 7]))  # the clock is set back now and then
            trace, own = int(chance.integers(TRACES)), chance.integers(0, KEYS, 4, np.uint64)
            own = np.unique(own)
            conditions = ranges.conditions(store, own)
            found = [row for one in conditions for row in search(store, own, one)]
            assert sorted(found) == search(store, own)
            write(store, trace, own, now_ns)
            ranges.wrote(store, own, now_ns)
            skipped += EVERYWHERE not in conditions
            if chance.random() < 0.05:  # retention
                store.execute(f"DELETE FROM trace_keys WHERE trace_id < '{chance.integers(30)}'")
            if chance.random() < 0.02:  # a transaction was rolled back
                ranges.clear()
    assert skipped > 100


def test_keys_that_no_trace_has_are_not_searched(tmp_path: Path) -> None:
    ranges = KeyRanges(full_searches=1)
    with open_store(tmp_path / "t.duckdb") as store:
        write(store, 1, keys_of([1, 2]), 5)
        assert ranges.conditions(store, keys_of([3])) == [EVERYWHERE]
        assert ranges.conditions(store, keys_of([3])) == []
        found = ranges.conditions(store, keys_of([2]))
        assert search(store, keys_of([2]), " OR ".join(found)) == [("1", 2)]


def test_the_filters_can_be_made_while_rows_are_not_committed(tmp_path: Path) -> None:
    ranges = KeyRanges(full_searches=0)
    with open_store(tmp_path / "t.duckdb") as store:
        write(store, 1, keys_of([1, 2]), 5)
        with store.transaction():
            write(store, 2, keys_of([3]), 6)
            for key in (1, 3):
                found = ranges.conditions(store, keys_of([key]))
                assert len(search(store, keys_of([key]), " OR ".join(found))) == 1


def test_a_trace_that_grows_for_ever_does_not_fill_the_memory(tmp_path: Path) -> None:
    ranges = KeyRanges(keys_a_part=8, full_searches=0)
    with open_store(tmp_path / "t.duckdb") as store:
        for number in range(200):
            keys = keys_of(range(number, number + 6))
            ranges.conditions(store, keys)
            write(store, 1, keys, number)
            ranges.wrote(store, keys, number)
            assert len(ranges) <= 4


@pytest.mark.parametrize("seed", range(3))
def test_the_tables_are_those_of_a_search_of_the_whole_table(seed: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(seed)
    with open_store(tmp_path / "once.duckdb") as store:
        deliver(store, tmp_path, *WITH_REWARD)
        expected = tables(store, (*TABLES, "trace_keys"))
    with open_store(tmp_path / "t.duckdb") as store:
        recent_traces(store).keys = KeyRanges(keys_a_part=8, full_searches=1)
        known = SeenIds(store)
        for number in chance.permutation(len(WITH_REWARD)):
            load(store, [WITH_REWARD[number]], known, dead_letters=tmp_path)
            refresh(store)
        while refresh(store):
            pass
        assert tables(store, (*TABLES, "trace_keys")) == expected
