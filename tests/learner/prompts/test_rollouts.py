"""Which rollouts the model that writes prompts reads."""

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.units import NO_UNITS, Units
from otel_lightning.learner.policy.logged.choices import Window as Choices
from otel_lightning.learner.policy.logged.choices import read_choices
from otel_lightning.learner.prompts.logged.rollouts import Window, read_rollouts
from otel_lightning.learner.prompts.logged.ruled_out import ruled_out
from otel_lightning.learner.task_splits import position

if TYPE_CHECKING:
    from conftest import Traces

BEGAN = datetime(2026, 11, 1)  # noqa: DTZ001 - the store's UTC has no zone
PROCESSES = """
INSERT INTO spans BY NAME
SELECT
    trace_id, span_id, "time" AS start_time, "time" AS end_time,
    '{"process.pid": "' || arm || '"}' AS resource_json, MAP {} AS attributes, [] AS events
FROM arms
"""
"""A process for each arm."""


def test_store_without_choices_says_how_they_come_into_it(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    told = "Let the agent evaluate the flag by OpenFeature, or set LIGHTNING_POLICY"
    with open_store(traces.store()) as store, pytest.raises(DataError, match=told):
        read_rollouts(store, Window("support-prompt"))
    traces.arm("a", "careful", 0.5)
    told = r"no choices for flag 'other', .* rollout\. It has: support-prompt\."
    with open_store(traces.store()) as store, pytest.raises(DataError, match=told):
        read_rollouts(store, Window("other"))


def test_the_error_of_a_judge_explains_no_failure(traces: "Traces") -> None:
    for i in range(20):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "careful", 0.5)
        traces.task(f"r{i}", f"t{i}")
        traces.reward(f"r{i}", 0.0)
    with open_store(traces.store()) as store:
        store.execute("""
            INSERT INTO scores BY NAME
            SELECT
                'r' || i AS rollout_id, rollout_id AS reward_id, 'tone' AS name,
                'judge:tone@1f2e' AS source, if(i < 10, 'error', 'fail') AS label,
                if(i < 10, 'The judge gave no score.', 'It is rude.') AS explanation
            FROM range(20) t(i)
        """)
        rows = read_rollouts(store, Window("support-prompt")).rows
    explained = rows.filter("explained")["rollout_id"].to_list()
    assert set(explained) == {one for one in rows["rollout_id"] if int(one[1:]) >= 10}
    assert 0 < len(explained) < rows.height


@pytest.mark.parametrize("reward", [0.0, 0.5])
def test_equal_rewards_rule_no_variant_out(traces: "Traces", reward: float) -> None:
    for i in range(40):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", ("careful", "careful-1a2b")[i % 2], 0.5)
        traces.task(f"r{i}", f"t{i}")
        traces.reward(f"r{i}", reward)
    with open_store(traces.store()) as store:
        rollouts = read_rollouts(store, Window("support-prompt"))
    assert ruled_out(rollouts, {"careful-1a2b": "careful"}) == set()


def test_shuffle_of_a_seed_does_not_depend_on_which_rollout_began_first(
    new_traces: Callable[[], "Traces"],
) -> None:
    """Rollouts that run at once begin in another order each time."""
    judged = []
    for order in range(2):
        traces, numbers = new_traces(), list(range(40))
        random.Random(order).shuffle(numbers)  # noqa: S311 - no secret
        for second, number in enumerate(numbers):
            rollout, time = f"r{number:02}", BEGAN + timedelta(seconds=second)
            traces.call(rollout, start_time=time)
            traces.arm(rollout, "careful", 0.5, time=time)
            traces.task(rollout, f"task-{number}")
            traces.reward(rollout, float(number))
        with open_store(traces.store()) as store:
            rows = read_rollouts(store, Window("support-prompt", shuffle_rewards=1)).rows
        judged.append({row["rollout_id"]: row["judged_as"] for row in rows.iter_rows(named=True)})
    assert judged[0] == judged[1]
    assert len(judged[0]) > 20
    assert any(rollout != other for rollout, other in judged[0].items())


def copied(traces: "Traces") -> None:
    """Record 20 rollouts five times each, with a task id of its own each time."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(20):
        arm = rng.choice(("brief", "careful", "long"))
        said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"case {i}"}]}])
        for copy in range(5):
            rollout = f"r{i}-{copy}"
            traces.call(rollout, input_messages=said)
            traces.arm(rollout, arm, 1 / 3)
            traces.task(rollout, f"t{i}-{copy}")
            traces.reward(rollout, float(arm == "brief"))


def test_no_copy_of_a_shown_rollout_is_held_out(traces: "Traces") -> None:
    copied(traces)
    with open_store(traces.store()) as store:
        found = read_rollouts(store, Window("support-prompt", held_out=0.5))
        logged = read_choices(store, Choices("support-prompt", held_out=0.5), {})
    assert found.units == Units(("input",), 100, 20)
    shown = set(found.rows["rollout_id"])
    assert 0 < len({one.partition("-")[0] for one in shown}) < 20
    # The gate judges by all others, and the gate by running by the tasks whose ids are held out.
    learned_from = set(logged.rows.filter(split="train")["rollout_id"])
    assert shown == {one for one in learned_from if position(one.replace("r", "t")) >= 0.5}


def test_rollouts_for_which_an_arm_was_kept_are_shown_by_their_own_tasks(
    traces: "Traces",
) -> None:
    """A run of held-out tasks keeps an arm for each process; as one task they would be shown."""
    for i in range(120):
        for arm in ("brief", "careful"):
            rollout, time = f"r{i}-{arm}", BEGAN + timedelta(seconds=i)
            traces.call(rollout, start_time=time)
            traces.arm(rollout, arm, 0.5, time=time, span_id=f"{rollout}.0")
            traces.task(rollout, f"t{i}")
            traces.reward(rollout, float(arm == "brief"))
    with open_store(traces.store()) as store:
        store.execute(PROCESSES)
        units = read_choices(store, Choices("support-prompt", missing="drop"), {}).units
        assert units.names == ("process.pid",)
        shown = set(read_rollouts(store, Window("support-prompt", held_out=0.5)).rows["rollout_id"])
    trained_on = [i for i in range(120) if position(f"t{i}") >= 0.5]
    assert shown == {f"r{i}-{arm}" for i in trained_on for arm in ("brief", "careful")}


def test_task_ids_stand_where_the_user_says_so(traces: "Traces") -> None:
    copied(traces)
    with open_store(traces.store()) as store:
        found = read_rollouts(store, Window("support-prompt", held_out=0.5, task_by="id"))
    assert found.units == NO_UNITS
    copies = found.rows["rollout_id"].str.split("-").list.first().value_counts()["count"]
    assert copies.min() < 5
