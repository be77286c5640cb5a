"""What a policy reads of each rollout must be what transitions say of it."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.policy.logged import staged
from otel_lightning.learner.policy.logged.choices import read_choices
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.transitions.make import make_transitions
from otel_lightning.learner.transitions.settings import Settings

if TYPE_CHECKING:
    from conftest import Traces

NOON = datetime(2026, 11, 1, hour=12)  # noqa: DTZ001 - the store's UTC has no zone


def judge(traces: "Traces", rng: random.Random, rollout: str, at: datetime, most: int) -> None:
    """Add rewards: repeated, contradictory, of a call, early or late."""
    for _ in range(min(most, rng.choice([0, 1, 1, 1, 2, 4]))):
        columns: dict[str, Any] = {
            "name": rng.choice(["right", "kind"]),
            "time": at + timedelta(seconds=rng.choice([-3, 0, 5, 5, 9])),
            "source": rng.choice(["log", "span", None]),
            "trace_id": rng.choice([rollout, None]),
        }
        if rng.random() < 0.3:
            columns |= {"trace_id": rollout, "span_id": f"{rollout}.0"}
        if rng.random() < 0.2:
            columns["task_id"] = f"judged-{rng.randrange(9)}"
        traces.reward(rollout, float(rng.random() < 0.5), **columns)


def scatter(traces: "Traces", seed: int, most: int = 4) -> str:
    """Write rollouts of every kind: with and without task, rewards, call, or an end, or lost."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    now = datetime.now(UTC).replace(tzinfo=None)
    for i in range(120):
        rollout, at = f"r{i:03}", rng.choice([NOON, NOON, NOON, now])
        for step in range(rng.choice([0, 1, 1, 2])):
            messages = [
                {"role": "system", "parts": [{"type": "text", "content": f"today is {i}"}]},
                {"role": "user", "parts": [{"type": "text", "content": f"q{i // 3}"}]},
            ]
            traces.call(
                rollout,
                step,
                start_time=at,
                end_time=at + timedelta(seconds=step + 1),
                finish_reason=rng.choice(["stop", "tool_calls"]),
                input_messages=rng.choice([json.dumps(messages), None]),
            )
        for _ in range(rng.choice([1, 1, 3])):
            arm = rng.choice(["brief", "careful"])
            traces.arm(rollout, arm, 0.5, time=at + timedelta(seconds=rng.randrange(3)))
        if rng.random() < 0.5:
            traces.task(rollout, f"t{i // 4}")
        if rng.random() < 0.5:
            traces.attempt(rollout, rng.choice(["ok", "failed", "lost"]))
        judge(traces, rng, rollout, at + timedelta(seconds=2), most)
    return traces.store()


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize(("seed", "task_by"), [(0, "user"), (1, "prompt"), (2, "id")])
def test_policy_reads_the_outcomes_tasks_and_splits_of_the_transitions(
    traces: "Traces", seed: int, task_by: str, most: int
) -> None:
    location = scatter(traces, seed, most)
    with open_store(location) as store:
        logged = read_choices(store, Window("support-prompt", missing="drop", task_by=task_by), {})
        make_transitions(store, Settings(task_by=task_by))
    ours = {
        row["rollout_id"]: (row["outcome"], row["split"], row["task"])
        for row in logged.rows.iter_rows(named=True)
    }
    theirs = traces.ask(
        "SELECT rollout_id, sum(reward) AS outcome, min(split) AS split, "
        "('0x' || min(task_hash))::UBIGINT AS task FROM transitions GROUP BY rollout_id"
    )
    assert len(theirs) > 30
    assert {row["rollout_id"]: (row["outcome"], row["split"], row["task"]) for row in theirs} == {
        name: ours[name] for name in (row["rollout_id"] for row in theirs)
    }
    # Transitions need a call with a completion; here each call has one.
    assert set(ours) == {row["rollout_id"] for row in theirs}


def test_rollouts_are_read_in_the_order_of_their_choices(traces: "Traces") -> None:
    location = scatter(traces, 4)
    with open_store(location) as store:
        rows = read_choices(store, Window("support-prompt", missing="drop"), {}).rows
    assert rows["time"].to_list() == sorted(rows["time"])


def test_rollout_with_two_choices_late_in_a_long_log_counts_once(traces: "Traces") -> None:
    count = staged.SAMPLE + 6
    last = count - 1  # an odd number, so its variant is 'careful'
    with open_store(traces.store()) as store:
        times = "'2026-11-01'::TIMESTAMP + n * INTERVAL 1 SECOND AS \"time\""
        numbers = f"FROM range({count}) t(n)"
        store.execute(
            "INSERT INTO llm_calls BY NAME SELECT 't' || n AS trace_id, 's' || n AS span_id, "
            f"'r' || n AS rollout_id, 0 AS step {numbers}"
        )
        store.execute(
            "INSERT INTO arms BY NAME SELECT 'r' || n AS rollout_id, 'support-prompt' AS key, "
            f"if(n % 2 = 0, 'brief', 'careful') AS arm, 0.5 AS propensity, {times} {numbers}"
        )
        store.execute(
            "INSERT INTO reward_events BY NAME SELECT 'w' || n AS reward_id, 'r' || n AS "
            f"rollout_id, 'right' AS name, (n % 3)::DOUBLE AS value, {times} {numbers}"
        )
        once = read_choices(store, Window("support-prompt", task_by="id"), {}).rows
        # The last rollout serves the other variant a second later: the first one counts.
        store.execute(
            "INSERT INTO arms BY NAME SELECT rollout_id, key, 'brief' AS arm, propensity, "
            '"time" + INTERVAL 1 SECOND AS "time" FROM arms '
            f"WHERE rollout_id = 'r{last}'"
        )
        twice = read_choices(store, Window("support-prompt", task_by="id"), {})
    assert twice.rows.equals(once)
    assert len(once) == count
    assert twice.several == 1


def test_equal_times_are_ordered_by_rollout_and_unknown_times_come_last(traces: "Traces") -> None:
    for rollout, at in (("r3", NOON), ("r2", None), ("r1", NOON), ("r0", None)):
        traces.call(rollout)
        traces.arm(rollout, "brief" if rollout < "r2" else "careful", 0.5, time=at)
        traces.reward(rollout, float(rollout == "r1"))
    with open_store(traces.store()) as store:
        rows = read_choices(store, Window("support-prompt", missing="drop"), {}).rows
    assert rows["rollout_id"].to_list() == ["r1", "r3", "r0", "r2"]


def test_reward_counts_by_its_name_whether_it_was_received_or_scored(traces: "Traces") -> None:
    for i in range(8):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "brief" if i % 2 else "careful", 0.5)
        if i < 4:
            traces.reward(f"r{i}", 1.0, name="right")
    with open_store(traces.store()) as store:
        store.execute(
            "INSERT INTO scores BY NAME SELECT 's' || n AS reward_id, 'r' || n AS rollout_id, "
            "'right' AS name, 0.0 AS value, 'rule:right' AS source FROM range(4, 8) t(n)"
        )
        received = read_choices(store, Window("support-prompt", missing="drop"), {}).rows
        named = read_choices(store, Window("support-prompt", reward="right"), {}).rows
    assert received["outcome"].to_list() == [1.0] * 4
    assert dict(named.select("rollout_id", "outcome").iter_rows()) == {
        f"r{i}": float(i < 4) for i in range(8)
    }
