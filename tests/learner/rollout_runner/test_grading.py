"""Rewards that the agent sends."""

from typing import TYPE_CHECKING

from otel_lightning.collector.store import open_store
from otel_lightning.learner.rollout_runner.attempts import OK
from otel_lightning.learner.rollout_runner.grading import Grading, grade

if TYPE_CHECKING:
    from conftest import Traces


def test_received_reward_that_is_not_finite_grades_nothing(traces: "Traces") -> None:
    values = {"a": 1.0, "b": float("nan"), "c": float("inf")}
    for rollout, value in values.items():
        traces.call(rollout)
        traces.reward(rollout, value)
    path = traces.store()
    with open_store(traces.path, create=False) as store:
        graded = grade(store, path, Grading(), dict.fromkeys(values, OK), lambda _: None)
    assert graded.rewards == {"a": 1.0}
