"""Rollouts that were recorded several times, each time with another task id, count once."""

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.policy.assumptions.copies import with_common_tasks
from otel_lightning.learner.policy.assumptions.units import Units
from otel_lightning.learner.policy.logged.choices import LoggedChoices, read_choices
from otel_lightning.learner.policy.logged.window import Window

if TYPE_CHECKING:
    from conftest import Traces

ARMS = ("brief", "careful", "long")


def asks(traces: "Traces", rollout: str, text: str, arm: str, **task: Any) -> None:
    """Add a rollout whose system prompt is its arm; each arm has a third of the traffic."""
    said = (("system", arm), ("user", text))
    messages = [{"role": role, "parts": [{"type": "text", "content": it}]} for role, it in said]
    traces.call(rollout, input_messages=json.dumps(messages))
    traces.arm(rollout, arm, 1 / 3)
    traces.reward(rollout, float(task.get("right", arm == "brief")))
    traces.task(rollout, task.get("task", rollout))


def read(traces: "Traces", task_by: str = "user", held_out: float = 0.3) -> LoggedChoices:
    with open_store(traces.store()) as store:
        window = Window("support-prompt", task_by=task_by, held_out=held_out)
        return read_choices(store, window, {})


def copied(traces: "Traces", copies: int = 10, originals: int = 20) -> None:
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(originals):
        arm = rng.choice(ARMS)
        for copy in range(copies):
            asks(traces, f"r{i}-{copy}", f"question {i}", arm)


def test_copies_of_a_rollout_under_other_task_ids_are_one_task(traces: "Traces") -> None:
    copied(traces)
    logged = read(traces, held_out=0.5)
    of_input = logged.rows.group_by(pl.col("rollout_id").str.split("-").list.first()).agg(
        pl.n_unique("task"), splits=pl.n_unique("split")
    )
    assert logged.rows["task"].n_unique() == 20
    assert of_input["task"].to_list() == [1] * 20
    assert of_input["splits"].to_list() == [1] * 20
    assert logged.rows["split"].n_unique() == 2
    assert logged.units == Units(("input",), 200, 20)
    assert "200 tasks count as 20" in " ".join(logged.notes)


def test_task_ids_stand_where_the_user_says_so(traces: "Traces") -> None:
    copied(traces)
    logged = read(traces, task_by="id")
    assert logged.rows["task"].n_unique() == 200
    assert logged.exceptions == []


def test_copies_of_tasks_with_several_rollouts_are_one_task(traces: "Traces") -> None:
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(20):
        arms = [rng.choice(ARMS) for _ in range(3)]
        for copy in range(4):
            for again, arm in enumerate(arms):
                asks(traces, f"r{i}-{again}-{copy}", f"question {i}", arm, task=f"t{i}-{copy}")
    assert read(traces).rows["task"].n_unique() == 20


def test_tasks_that_begin_with_the_same_words_stay_apart(traces: "Traces") -> None:
    """Whatever their arms are: such words name no task."""
    for i in range(200):
        asks(traces, f"r{i}", "go", ARMS[i // 70])
    assert read(traces).rows["task"].n_unique() == 200


def test_tasks_that_ran_once_with_each_arm_are_no_copies(traces: "Traces") -> None:
    """Such arms are not drawn, but neither is one task a copy of another."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(40):
        for arm in ARMS:
            asks(
                traces,
                f"r{i}-{arm}",
                f"question {i % 20}",
                arm,
                task=f"t{i}",
                right=rng.random() < 0.5,
            )
    assert read(traces).rows["task"].n_unique() == 40


@pytest.mark.parametrize("questions", [1, 20])
def test_tasks_with_equal_inputs_whose_arms_were_drawn_anew_stay_apart(
    traces: "Traces", questions: int
) -> None:
    """Many users ask the same, or every task begins with the same words."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(200):
        asks(traces, f"r{i}", f"question {i % questions}", rng.choice(ARMS))
    logged = read(traces)
    assert logged.rows["task"].n_unique() == 200
    assert logged.exceptions == []


def test_rollouts_of_one_task_are_no_evidence_of_copies(traces: "Traces") -> None:
    """Here one task keeps its arm, so only other tasks with its input can tell copies."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(40):
        arm = rng.choice(ARMS)
        for again in range(5):
            asks(traces, f"r{i}-{again}", f"question {i % 20}", arm, task=f"t{i}")
    assert read(traces).rows["task"].n_unique() == 40


def with_common(tasks: list[int], inputs: list[int | None]) -> pl.Series:
    rows = pl.DataFrame({"task_hash": pl.Series(tasks, dtype=pl.UInt64)})
    shared = pl.DataFrame({"row": range(len(tasks)), "value": inputs}).drop_nulls()
    return with_common_tasks(rows, shared)["task_hash"]


def test_tasks_that_several_inputs_connect_are_one_and_others_keep_their_own() -> None:
    # Task 7 shares an input with 5, which shares another one with 3, and so on; 9 has none.
    tasks = [7, 5, 5, 3, 3, 6, 9, 8]
    merged = with_common(tasks, [1, 1, 2, 2, 3, 3, None, 4]).to_list()
    assert len(set(merged[:6])) == 1
    assert merged[6:] == [9, 8]
    assert merged[0] not in tasks


def test_common_tasks_are_held_out_as_often_as_others() -> None:
    """The split goes by the size of the hash, and the least of ten hashes is a small one."""
    rng = np.random.default_rng(0)
    hashes = rng.integers(2**63, size=4000, dtype=np.uint64) * np.uint64(2)
    merged = with_common(hashes.tolist(), (np.arange(4000) // 10).tolist())
    assert merged.n_unique() == 400
    assert 0.4 < (merged.unique() < 2**63).mean() < 0.6  # type: ignore[operator]
