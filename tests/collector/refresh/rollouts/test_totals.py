"""Rows of rollouts made from calls, tools, agents and rewards of every kind, beside the views."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.examples import first_quick
from support.first_views import differences

from otel_lightning.collector.process.child import packed, unpacked
from otel_lightning.collector.refresh.rollouts import totals
from otel_lightning.collector.refresh.rollouts.rollout_rows import recompute
from otel_lightning.collector.store import open_store

ROLLOUTS = [f"rollout {number}" for number in range(30)]
TIMES = [None, 5, 10, 15, 20, 25]
TYPES = {name: pa.timestamp("ns") for name in ("start_time", "end_time", "time")}


def rows_of(chance: random.Random) -> dict[str, list[dict[str, Any]]]:
    """Return rows of every kind, with and without each value."""
    pick = chance.choice
    rows: dict[str, list[dict[str, Any]]] = {
        "llm_calls": [], "tool_calls": [], "agent_runs": [], "reward_events": [],
        "rollout_tasks": [],
    }  # fmt: skip
    for rollout in ROLLOUTS:
        steps = [*range(chance.randint(1, 4)), *[None] * chance.randint(0, 2)]
        chance.shuffle(steps)
        for number, step in enumerate(steps):
            rows["llm_calls"].append({
                "trace_id": f"{rollout} {number % 2}", "span_id": f"{rollout} {number}",
                "rollout_id": rollout, "step": step, "dialect": "semconv", "content": "full",
                "service_name": pick([None, "a", "b", "é"]), "start_time": pick(TIMES),
                "end_time": pick(TIMES), "input_tokens": pick([None, 0, 7]),
                "output_tokens": pick([None, 3]), "error_type": pick([None, None, "timeout"]),
                "finish_reason": pick([None, "stop", "length", "tool_calls"]),
            })  # fmt: skip
        for _ in range(chance.randint(0, 3)):
            tool = {"trace_id": rollout, "rollout_id": rollout, "error_type": pick([None, "bad"])}
            rows["tool_calls"].append(tool)
            rows["agent_runs"].append({
                "trace_id": rollout, "span_id": "1", "rollout_id": rollout,
                "parent_span_id": pick([None, "2"]), "end_time": pick(TIMES),
            })  # fmt: skip
        # No two at one time: of those the views took any.
        for number, time in enumerate(chance.sample(TIMES, chance.randint(0, 2))):
            rows["reward_events"].append({
                "reward_id": f"{rollout} {number}", "rollout_id": rollout, "name": "primary",
                "value": pick([None, 0.0, 0.5, 1.0]), "time": time,
                "task_id": pick([None, "a", "b"]),
            })  # fmt: skip
        for task in chance.sample("xyz", chance.choice([0, 0, 2])):
            rows["rollout_tasks"].append({"rollout_id": rollout, "task_id": task})
    return rows


@pytest.mark.parametrize("seed", first_quick(range(8)))
def test_totals_are_the_same_in_another_process(seed: int) -> None:
    rows = rows_of(random.Random(seed))  # noqa: S311
    parts = {
        table: [
            pa.table({n: pa.array([row.get(n) for row in rows[table]], TYPES.get(n)) for n in read})
        ]
        for table, read in totals.TOTALED_COLUMNS.items()
    }
    made = totals.totals_of(parts)
    assert len(made) == len(ROLLOUTS)
    assert totals.of_table(unpacked(packed(totals.as_table(made)))) == made


def test_no_totals_are_a_table_too() -> None:
    assert totals.of_table(totals.as_table([])) == []


@pytest.mark.parametrize("seed", first_quick(range(8)))
def test_rows_made_from_stored_calls_equal_the_former_views(seed: int, tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        for table, rows in rows_of(random.Random(seed)).items():  # noqa: S311
            columns = {
                name: pa.array([row[name] for row in rows], TYPES.get(name)) for name in rows[0]
            }
            store.insert(table, pa.table(columns))
        recompute(store, "llm_calls")
        assert store.count("rollouts") == len(ROLLOUTS)
        assert differences(store) == []
