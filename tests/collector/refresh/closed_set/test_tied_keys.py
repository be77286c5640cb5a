"""Keys of traces as numbers, and where those lead that many traces share."""

from pathlib import Path

import pyarrow as pa
import pytest

from otel_lightning.collector.derive.batches.tied_keys import TiedKeys, hashed
from otel_lightning.collector.refresh.closed_set.closed_set import CROWD, ClosedSet, size_new
from otel_lightning.collector.store import Store, open_store

TEXTS = ["", "history:a", "conversation:ü", "x" * 1_000]


def tied(*rows: tuple[str, str, str]) -> pa.Table:
    traces, keys, seeks = zip(*rows, strict=True)
    return pa.table({"trace_id": traces, "key": keys, "seeks": seeks})


def test_a_key_is_the_number_that_stores_have_for_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        texts = pa.table({"text": TEXTS})
        expected = store.pick(texts, "SELECT md5_number_lower(text) AS key FROM {rows}")
    assert hashed(texts["text"]).tolist() == expected["key"].to_pylist()


def test_a_trace_keeps_each_of_its_own_keys_once() -> None:
    keys = TiedKeys.of(
        tied(("1", "ran:a", "asks:a"), ("1", "ran:a", "asks:b"), ("2", "ran:a", "ran:a"))
    )
    (ran,) = hashed(pa.chunked_array([["ran:a"]])).tolist()
    assert keys.own_of(["1", "2"]).to_pylist() == [
        {"trace_id": "1", "key": ran},
        {"trace_id": "2", "key": ran},
    ]
    assert keys.own_of(["2"])["trace_id"].to_pylist() == ["2"]
    sought = hashed(pa.chunked_array([["asks:a", "asks:b", "ran:a"]])).tolist()
    assert keys.sought_keys_by_trace()["key"].to_pylist() == sought


def stored_keys(store: Store, key: str, traces: int) -> None:
    store.execute(
        "INSERT INTO trace_keys BY NAME"
        f" SELECT 'old ' || n AS trace_id, md5_number_lower('{key}') AS key"
        f" FROM range({traces}) numbers(n)"
    )


@pytest.mark.parametrize(
    ("key", "traces", "led_to"),
    [
        ("history:a", CROWD - 1, CROWD - 1),
        ("history:a", CROWD, 0),  # one more with the new trace
        ("conversation:a", CROWD, CROWD),
        ("history:b", 5, 0),
    ],
)
def test_a_key_leads_to_its_traces_unless_a_crowd_shares_it(
    key: str, traces: int, led_to: int, tmp_path: Path
) -> None:
    with open_store(tmp_path / "t.duckdb") as store, store.transaction():
        stored_keys(store, key, traces)
        store.execute("INSERT INTO stale BY NAME SELECT 'trace' AS kind, 'new' AS id")
        size_new(store)
        closed = ClosedSet(store, 10, ())
        closed.logs()
        keys = tied(("new", "history:a", "history:a"), ("new", "conversation:a", "conversation:a"))
        closed.follow(TiedKeys.of(keys))
        assert len(closed.frontier()) == led_to
        written = store.query("SELECT count(*) FROM trace_keys WHERE trace_id = 'new'")
        assert written.column(0).to_pylist() == [2]


def test_the_former_keys_of_a_trace_do_not_count_for_a_crowd(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store, store.transaction():
        stored_keys(store, "history:a", CROWD - 1)
        store.execute(
            "INSERT INTO trace_keys BY NAME"
            " SELECT 'new' AS trace_id, md5_number_lower('history:a') AS key;"
            "INSERT INTO stale BY NAME SELECT 'trace' AS kind, 'new' AS id"
        )
        size_new(store)
        closed = ClosedSet(store, 10, ())
        closed.logs()
        closed.follow(TiedKeys.of(tied(("new", "history:a", "history:a"))))
        assert len(closed.frontier()) == CROWD - 1
        assert closed.settled() == closed.frontier()


def test_a_chain_of_turns_of_one_rollout_is_read_in_a_few_steps(tmp_path: Path) -> None:
    """Each turn of a conversation names only the turn before it."""
    turns = 50
    by_trace = {
        f"turn {n}": [(f"turn {n}", f"answer {one}", f"answer {one}") for one in (n - 1, n)]
        for n in range(turns)
    }
    with open_store(tmp_path / "t.duckdb") as store, store.transaction():
        for trace_id, rows in by_trace.items():
            for _, key, _ in rows:
                store.execute(
                    "INSERT INTO trace_keys BY NAME"
                    f" SELECT '{trace_id}' AS trace_id, md5_number_lower('{key}') AS key"
                )
        store.execute(
            "INSERT INTO llm_calls BY NAME SELECT 'turn ' || n AS trace_id, 's' AS span_id,"
            f" 'one' AS rollout_id, n AS step FROM range({turns}) numbers(n);"
            "INSERT INTO stale BY NAME SELECT 'trace' AS kind, 'new' AS id"
        )
        size_new(store)
        closed, steps = ClosedSet(store, 10, ()), 0
        last = f"answer {turns - 1}"
        read = {**by_trace, "new": [("new", last, last)]}
        while not closed.is_complete():
            frontier, steps = closed.frontier(), steps + 1
            closed.logs()
            closed.follow(TiedKeys.of(tied(*(row for one in frontier for row in read[one]))))
        assert sorted(closed.trace_ids()) == sorted(read)
        assert steps <= 5
