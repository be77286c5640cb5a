"""Rewards that the agent sends."""

import random
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.attempts import OK
from otel_lightning.learner.rollout_runner.grading import (
    Graded,
    Grading,
    answer_of,
    check,
    grade,
)
from otel_lightning.learner.transitions.make import Settings, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

START = datetime(2026, 11, 1)  # noqa: DTZ001 - the store's UTC has no zone
LATER = START + timedelta(minutes=2)


def graded(traces: "Traces", *rollouts: str, reward: str | None = None) -> Graded:
    traces.store()
    statuses = dict.fromkeys(rollouts, OK)
    with open_store(traces.path, create=False) as store:
        return grade(store, traces.path, Grading(reward=reward), statuses, lambda _: None)


def test_received_reward_that_is_not_finite_grades_nothing_and_is_named(traces: "Traces") -> None:
    values = {"a": 1.0, "b": float("nan"), "c": float("inf")}
    for rollout, value in values.items():
        traces.call(rollout)
        traces.reward(rollout, value)
    grades = graded(traces, *values)
    assert grades.rewards == {"a": 1.0}
    (problem,) = grades.problems
    assert problem == "2 not graded: the reward is not a finite number (b, c)."


@pytest.mark.parametrize("values", [[1e61], [-1e300, 1.0], [6e59, 6e59], [1e308, 1e308]])
def test_received_rewards_that_learning_refuses_grade_nothing_and_are_named(
    traces: "Traces", values: list[float]
) -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.call("b")
    for number, value in enumerate(values):
        traces.reward("b", value, name=f"part-{number}")
    grades = graded(traces, "a", "b")
    assert grades.rewards == {"a": 1.0}
    problem = "1 not graded: the reward is beyond 1e+60, which cannot be computed with (b)."
    assert problem in grades.problems


@pytest.mark.parametrize("printed", ["1e61", "-1e300", "1" + "0" * 400, '{"score": 1e61}'])
def test_score_of_a_command_that_learning_refuses_is_no_reward(printed: str) -> None:
    row = {"rollout_id": "a", "input": None, "expected": None, "metadata": None}
    told = answer_of([sys.executable, "-c", f"print({printed!r})"], row)
    assert told == "the grading command gave a score beyond 1e+60, which cannot be computed with"


def test_failed_reward_that_learning_refuses_is_refused_before_anything_runs() -> None:
    with pytest.raises(DataError, match=r"--failed-reward is -1e\+70. Beyond 1e\+60"):
        check(Grading(by_exit_code=True, failed_reward=-1e70))


def test_received_rewards_of_several_names_add_up_and_are_named(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.reward("a", -0.25, name="cost")
    grades = graded(traces, "a")
    assert grades.rewards == {"a": 0.75}
    (problem,) = grades.problems
    assert "added up, such as 'cost' and 'task_success'" in problem


def test_a_chosen_name_is_reported_alone(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.reward("a", -0.25, name="cost")
    assert graded(traces, "a", reward="cost") == Graded("cost", {"a": -0.25})


def test_rewards_that_contradict_each_other_grade_nothing(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.reward("a", 0.0)
    grades = graded(traces, "a")
    assert (grades.rewards, grades.problems) == (
        {},
        ["1 not graded: two rewards of one name and time differ (a)."],
    )


def test_received_rewards_are_those_that_transitions_learn_from(traces: "Traces") -> None:
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    names = [f"r{i:02}" for i in range(60)]
    for name in names:
        calls = rng.randint(1, 4)
        for step in range(calls):
            traces.call(name, step)
        traces.tool(name, "search")
        traces.agent(name, "root", 0, calls)
        for number in range(rng.randint(1, 6)):
            place = rng.choice([None, f"{name}.0", f"{name}.root", "tool-0", "elsewhere"])
            traces.reward(
                name,
                rng.randint(-9, 9) / 10,
                name=rng.choice(["task_success", "style"]),
                trace_id=rng.choice([None, name]) if place is None else name,
                span_id=place,
                source=rng.choice(["span", "log", "feedback", "agentlightning"]),
                time=START + timedelta(seconds=rng.randint(0, 6), milliseconds=number),
            )
    grades = graded(traces, *names)
    make_transitions(str(traces.path), Settings())
    learned = traces.ask("SELECT rollout_id, sum(reward) AS value FROM transitions GROUP BY ALL")
    assert len(learned) == len(names)
    assert grades.rewards == {row["rollout_id"]: pytest.approx(row["value"]) for row in learned}


def test_a_grading_command_that_does_not_exist_is_refused_before_anything_runs() -> None:
    with pytest.raises(DataError, match="there is no program 'no-such-grader'"):
        check(Grading(command=["no-such-grader", "--fast"]))
