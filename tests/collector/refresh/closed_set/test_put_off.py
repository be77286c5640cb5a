"""Traces that share a key with a trace of a rollout that waits, wait with it."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_lightning.collector.refresh.closed_set.closed_set import KEYS, ClosedSet
from otel_lightning.collector.store import open_store

TRACES, ROLLOUTS = st.sampled_from("abcde"), st.sampled_from(["r1", "r2", "r3"])
TIES = st.lists(st.tuples(TRACES, st.integers(0, 3)), max_size=10)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedSet]:
    with open_store(tmp_path_factory.mktemp("store") / "t.duckdb") as store, store.transaction():
        yield ClosedSet(store, 1, ())


def keys(ties: list[tuple[str, int]]) -> pa.Table:
    rows = [{"trace_id": trace_id, "key": key} for trace_id, key in ties]
    return pa.Table.from_pylist(rows, KEYS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TIES, TIES, st.dictionaries(TRACES, ROLLOUTS))
def test_it_is_the_least_rollout_of_all_that_have_a_key_that_the_trace_looks_for(
    closed: ClosedSet,
    sought: list[tuple[str, int]],
    met: list[tuple[str, int]],
    waiting: dict[str, str],
) -> None:
    closed._sought_keys, closed._matches = keys(sought), keys(met)
    led_to = [
        (trace_id, waiting[other])
        for trace_id, key in sought
        for other, same in met
        if key == same and other in waiting
    ]
    expected = {
        trace_id: min(rollout for one, rollout in led_to if one == trace_id)
        for trace_id, _ in led_to
    }
    assert closed._put_off(waiting) == expected
