"""Rows of recent traces are found by their times, and none of them is missed."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from support.deliveries import (
    SENT,
    TABLES,
    WITH_REWARD,
    deliver,
    remember_wrong_times,
    tables,
)

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.refresh.time_ranges.recent_traces import (
    EVERYWHERE,
    NOWHERE,
    RecentTraces,
    recent_traces,
)
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.store import StoreError, open_store
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

COMPARED = (*TABLES, "trace_keys", "rollout_rows", "tool_calls", "retrievals")
SECOND_NS = 1_000_000_000


def at(received_ns: int, sent: Request) -> Request:
    return sent._replace(received_ns=received_ns)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_spans_that_come_one_by_one_in_any_order_give_the_tables_of_all_at_once(
    seed: int, tmp_path: Path
) -> None:
    with open_store(tmp_path / "once.duckdb") as store:
        deliver(store, tmp_path, *WITH_REWARD)
        expected = tables(store, COMPARED)
    chance = random.Random(seed)  # noqa: S311
    sent = chance.sample(WITH_REWARD, len(WITH_REWARD))
    with open_store(tmp_path / "t.duckdb") as store:
        known = SeenIds(store)
        for number, one in enumerate(sent):
            # The clock is set back now and then.
            received_ns = (100 + number - chance.choice([0, 0, 50])) * SECOND_NS
            load(store, [at(received_ns, one)], known, dead_letters=tmp_path)
            if chance.random() < 0.7:
                refresh(store)
            if chance.random() < 0.1:  # as at a new start
                recent_traces(store).clear()
                known = SeenIds(store)
            if chance.random() < 0.3:  # as when many other traces came
                recent_traces(store).make_older()
            if chance.random() < 0.3:  # as at a new start after an orderly stop
                recent = recent_traces(store)
                recent.make_older()
                kept = recent.older.to_bytes()
                recent.clear()
                recent.older.restore(kept)
        while refresh(store):
            pass
        assert tables(store, COMPARED) == expected


def test_only_a_trace_without_any_row_is_new(tmp_path: Path) -> None:
    first, second = pa.array(["1" * 32]), pa.array(["2" * 32])
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, SENT, dead_letters=tmp_path)
        stored = pa.array(store.query("SELECT DISTINCT trace_id FROM spans")["trace_id"])
        for known in (SeenIds(store), SeenIds(store)):
            assert known.new_traces(first).to_pylist() == [True]
            assert known.new_traces(first).to_pylist() == [False]
            assert known.new_traces(second).to_pylist() == [True]
            assert not any(known.new_traces(stored).to_pylist())


def test_a_new_trace_has_no_derived_rows_and_a_derived_one_is_searched_from_its_first_row() -> None:
    recent = RecentTraces()
    recent.arrived(["a", "b"], [True, False], 7)
    assert set(recent.rows_since(["a"]).values()) == {NOWHERE}
    assert recent.keys_since(["a"]) == NOWHERE
    assert recent.received_since(["a"]) == '"received_at" >= make_timestamp_ns(7)'
    recent.arrived(["a"], [False], 5)
    recent.wrote_keys(["a"], 11)
    recent.derived(["a"], [], {"llm_calls": 3, "unread_spans": None})
    assert recent.received_since(["a"]) == '"received_at" >= make_timestamp_ns(5)'
    assert recent.keys_since(["a"]) == '"added_at" >= make_timestamp_ns(11)'
    rows = recent.rows_since(["a"])
    assert rows["llm_calls"] == '"start_time" >= make_timestamp_ns(3)'
    assert rows["unread_spans"] == EVERYWHERE
    assert rows["tool_calls"] == NOWHERE
    # `b` was stored before, by another process perhaps.
    assert {recent.received_since(["a", "b"]), recent.keys_since(["a", "b"])} == {EVERYWHERE}
    assert set(recent.rows_since(["a", "b"]).values()) == {EVERYWHERE}


def test_rows_that_stayed_while_their_rollout_was_written_again_are_found() -> None:
    recent = RecentTraces()
    recent.arrived(["a", "b"], [True, True], 1)
    recent.derived(["a"], [], {"llm_calls": 3, "rollout_rows": 3})
    recent.derived(["b"], ["a"], {"llm_calls": 9, "rollout_rows": 2})
    rows = recent.rows_since(["a"])
    assert rows["llm_calls"] == '"start_time" >= make_timestamp_ns(3)'
    assert rows["rollout_rows"] == '"start_time" >= make_timestamp_ns(2)'


def test_the_oldest_traces_are_forgotten_if_they_were_not_derived() -> None:
    recent = RecentTraces(most=2, spare=0)
    for number, trace_id in enumerate("abc"):
        recent.arrived([trace_id], [True], number)
    assert recent.received_since(["a"]) == EVERYWHERE
    assert recent.received_since(["b", "c"]) == '"received_at" >= make_timestamp_ns(1)'


def test_the_oldest_traces_are_remembered_to_the_second() -> None:
    recent = RecentTraces(most=2, spare=1)
    for number, trace_id in enumerate("abcd", 7):
        recent.arrived([trace_id], [True], number * SECOND_NS + 5)
        recent.wrote_keys([trace_id], number * SECOND_NS + 6)
        recent.derived([trace_id], [], {"llm_calls": number * SECOND_NS + 4, "unread_spans": None})
    assert len(recent.older) == 2
    assert (
        recent.received_since(["a", "d"]) == f'"received_at" >= make_timestamp_ns({7 * SECOND_NS})'
    )
    assert recent.keys_since("b") == f'"added_at" >= make_timestamp_ns({8 * SECOND_NS})'
    rows = recent.rows_since(["a"])
    assert rows["llm_calls"] == f'"start_time" >= make_timestamp_ns({7 * SECOND_NS})'
    assert (rows["unread_spans"], rows["tool_calls"]) == (EVERYWHERE, NOWHERE)


def test_spans_that_come_late_in_an_older_trace_are_found() -> None:
    recent = RecentTraces()
    recent.arrived(["a"], [True], 7 * SECOND_NS)
    recent.derived(["a"], [], {"llm_calls": 3 * SECOND_NS})
    recent.make_older()
    recent.arrived(["a"], [False], 9 * SECOND_NS)
    assert recent.late_since("a") == 9 * SECOND_NS
    # It is not derived now, so it is not known since when it has such spans.
    recent.make_older()
    recent.arrived(["a"], [False], 11 * SECOND_NS)
    assert recent.late_since("a") is None
    assert recent.received_since(["a"]) == EVERYWHERE


def test_after_a_load_that_was_undone_everything_is_searched(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, SENT, dead_letters=tmp_path)
        (trace_id, *_) = store.query("SELECT trace_id FROM spans")["trace_id"].to_pylist()
        assert recent_traces(store).received_since([trace_id]) != EVERYWHERE
        store.execute("ALTER TABLE spool_position RENAME TO elsewhere")
        with pytest.raises(StoreError, match="spool_position"):
            load(store, SENT, end=Position(1, 1), dead_letters=tmp_path)
        assert recent_traces(store).received_since([trace_id]) == EVERYWHERE


def test_after_a_rollback_everything_is_searched(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, SENT, dead_letters=tmp_path)
        (trace_id, *_) = store.query("SELECT trace_id FROM spans")["trace_id"].to_pylist()
        assert recent_traces(store).received_since([trace_id]) != EVERYWHERE
        store.execute("ALTER TABLE llm_calls RENAME TO elsewhere")
        with pytest.raises(StoreError):
            refresh(store)
        assert recent_traces(store).received_since([trace_id]) == EVERYWHERE


def test_spans_that_are_not_found_are_an_error_and_are_found_afterwards(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, SENT, dead_letters=tmp_path)
        remember_wrong_times(store)
        with pytest.raises(StoreError, match=r"Only 0 of \d+ spans"):
            refresh(store)
        while refresh(store):
            pass
        expected = tables(store, COMPARED)
        rebuild(store)
        while refresh(store):
            pass
        assert tables(store, COMPARED) == expected
        assert store.count("llm_calls")
