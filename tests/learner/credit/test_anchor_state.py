"""GiGPO's step-level advantages against their definition and the authors' code."""

from statistics import mean, stdev
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_steps import ROLLOUTS, SHARES, Rollout, apart, together

from otel_lightning.learner.credit import METHODS, Options, advantages
from otel_lightning.learner.credit.compare import EPSILON
from otel_lightning.learner.transitions.make import Settings, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

# Computed once, in torch, by the steps of the authors' gigpo/core_gigpo.py in verl-agent
# (episode_norm_reward, build_step_group, step_norm_reward), for omega 0.8 and gamma 0.95.
AUTHORS_ROLLOUTS = [
    Rollout([0, 0, 10], states=[1, 2, 3]),
    Rollout([0, -1, 0], states=[1, 2, 4]),
    Rollout([0.5, 0, 10], states=[1, 4, 2]),
    Rollout([0, 2], states=[5, 1]),
]
AUTHORS_MEAN = [
    [7.925, 7.291667, 4.625],
    [-11.055, -12.108333, -10.175],
    [8.825, 8.925, 8.191667],
    [-3.375, -5.695],
]
AUTHORS_MEAN_AND_DEVIATION = [
    [1.437261, 1.231636, 0.802328],
    [-2.006362, -2.028923, -1.671597],
    [1.600961, 1.454751, 1.38277],
    [-0.585483, -1.03186],
]


@pytest.mark.parametrize(
    ("scale", "expected"), [("none", AUTHORS_MEAN), ("std", AUTHORS_MEAN_AND_DEVIATION)]
)
def test_group_and_anchor_state_are_gigpo_as_its_authors_compute_it(
    scale: str, expected: list[list[float]]
) -> None:
    options = Options(gamma=0.95, baseline="mean", scale=scale, step_weight=0.8)
    result = advantages("group+anchor_state", together(AUTHORS_ROLLOUTS), options)
    for ours, theirs in zip(apart(result, AUTHORS_ROLLOUTS), expected, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-6)


def literal_return(rollout: Rollout, t: int, gamma: float) -> float:
    return sum(gamma ** (k - t) * rollout.earned[k] for k in range(t, len(rollout.earned)))


def literal(rollouts: list[Rollout], i: int, t: int, gamma: float, scale: str) -> float:
    """A^S of call t of rollout i, over all calls (j, k) from the same state of the same task."""
    group = [
        literal_return(other, k, gamma)
        for other in rollouts
        for k, state in enumerate(other.states)
        if other.task == rollouts[i].task and state == rollouts[i].states[t]
    ]
    if len(group) == 1:
        return 0.0
    deviation = stdev(group) + EPSILON if scale == "std" else 1.0
    return (literal_return(rollouts[i], t, gamma) - mean(group)) / deviation


@given(ROLLOUTS, SHARES, st.sampled_from(["none", "std"]))
def test_anchor_state_is_the_return_against_those_from_the_same_state(
    rollouts: list[Rollout], gamma: float, scale: str
) -> None:
    options = Options(gamma=gamma, baseline="mean", scale=scale)
    results = apart(METHODS["anchor_state"](together(rollouts), options), rollouts)
    for i, result in enumerate(results):
        expected = [literal(rollouts, i, t, gamma, scale) for t in range(len(result))]
        assert result == pytest.approx(expected, abs=1e-6)


def test_leave_one_out_compares_with_the_other_visits_only() -> None:
    visits = [Rollout([1.0], states=[7]), Rollout([0.0], states=[7]), Rollout([0.5], states=[7])]
    result = METHODS["anchor_state"](together(visits), Options())
    assert result.tolist() == [0.75, -0.75, 0.0]


def test_same_state_in_another_task_is_another_state() -> None:
    apart_by_task = [Rollout([1.0], states=[7], task=0), Rollout([0.0], states=[7], task=1)]
    assert METHODS["anchor_state"](together(apart_by_task), Options()).tolist() == [0.0, 0.0]


def test_calls_of_which_nothing_was_recorded_are_not_the_same_state(traces: "Traces") -> None:
    for rollout, reward in (("a", 1.0), ("b", 0.0)):
        traces.call(rollout, state_hash=None)
        traces.reward(rollout, reward)
        traces.task(rollout, "one")
    make_transitions(traces.store(), Settings(credit="anchor_state"))
    rows = traces.ask("SELECT advantage FROM transition_rows")
    assert [row["advantage"] for row in rows] == [0.0, 0.0]
