"""The statements by which the benchmarks fill their stores fit the tables of today."""

from pathlib import Path

import pytest
from bench import ask_sql, transitions

from otel_lightning.collector.store import open_store

TRACES = 4


@pytest.mark.parametrize(
    "statements",
    [
        (transitions.FILL.format(first=0, last=TRACES),),
        (
            ask_sql.MAKE.format(first=0, last=ask_sql.SPANS_A_TRACE * TRACES),
            ask_sql.DERIVE.format(first=0, last=TRACES),
        ),
    ],
    ids=["transitions", "ask"],
)
def test_a_store_is_filled_with_the_calls_and_task_of_each_trace(
    statements: tuple[str, ...], tmp_path: Path
) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        for statement in statements:
            store.execute(statement)
        (calls,) = store.rows("SELECT count(DISTINCT rollout_id) AS rollouts FROM llm_calls")
        (tasks,) = store.rows("SELECT count(DISTINCT rollout_id) AS rollouts FROM rollout_tasks")
    assert calls == tasks == {"rollouts": TRACES}
