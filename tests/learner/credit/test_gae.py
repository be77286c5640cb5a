"""Generalized advantage estimation against its definition and verl's numbers."""

from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_steps import ROLLOUTS, SHARES, Rollout, apart, together

from otel_lightning.learner.credit import METHODS, Options, ungrouped
from otel_lightning.learner.credit.value import fitted

VALUES = st.sampled_from(["leave_one_out", "fitted"])


def literal_return(rollout: Rollout, t: int, gamma: float) -> float:
    return sum(gamma ** (k - t) * rollout.earned[k] for k in range(t, len(rollout.earned)))


def of_others(rollouts: list[Rollout], i: int, t: int, gamma: float) -> float:
    """The mean return of the task's other rollouts from step t on, or from their last call."""
    return mean(
        literal_return(other, min(t, len(other.rewards) - 1), gamma)
        for j, other in enumerate(rollouts)
        if j != i and other.task == rollouts[i].task
    )


def of_line(rollouts: list[Rollout], i: int, t: int, gamma: float) -> float:
    """The task's ridge regression at step t, by augmented least squares."""
    of_task = [r for r in rollouts if r.task == rollouts[i].task]
    seen = [(k, literal_return(r, k, gamma)) for r in of_task for k in range(len(r.rewards))]
    centre = mean(k for k, _ in seen)
    features = [[1.0, k - centre] for k, _ in seen] + [[0.0, 1.0]]
    targets = [g for _, g in seen] + [0.0]
    (a, b), *_ = np.linalg.lstsq(np.array(features), np.array(targets), rcond=None)
    return float(a + b * (t - centre))


def literal(rollouts: list[Rollout], i: int, options: Options) -> list[float]:
    """The sum over l of (gamma lam)^l delta[t+l], with V and delta as defined."""
    rollout, gamma = rollouts[i], options.gamma
    value = of_line if options.value == "fitted" else of_others
    values = [value(rollouts, i, t, gamma) for t in range(len(rollout.rewards) + 1)]
    if not rollout.truncated:
        values[-1] = 0.0
    delta = [r + gamma * values[t + 1] - values[t] for t, r in enumerate(rollout.earned)]
    return [
        sum((gamma * options.lam) ** (k - t) * delta[k] for k in range(t, len(delta)))
        for t in range(len(delta))
    ]


@given(ROLLOUTS, SHARES, SHARES, VALUES)
def test_gae_is_the_discounted_sum_of_temporal_differences(
    rollouts: list[Rollout], gamma: float, lam: float, value: str
) -> None:
    options = Options(gamma=gamma, lam=lam, value=value)
    steps = together(rollouts)
    alone = apart(ungrouped(steps), rollouts)
    for i, result in enumerate(apart(METHODS["gae"](steps, options), rollouts)):
        if value == "leave_one_out" and alone[i][0]:
            assert result == [0.0] * len(result)
        else:
            assert result == pytest.approx(literal(rollouts, i, options), abs=1e-9)


@given(ROLLOUTS, SHARES)
def test_gae_is_return_minus_value_at_lam_1_and_the_temporal_difference_at_lam_0(
    rollouts: list[Rollout], gamma: float
) -> None:
    steps = together([replace(r, truncated=False) for r in rollouts])
    returns = METHODS["return_to_go"](steps, Options(gamma=gamma))
    values = fitted(returns, steps).at
    at_1, at_0 = (
        METHODS["gae"](steps, Options(gamma=gamma, lam=lam, value="fitted")) for lam in (1.0, 0.0)
    )
    assert at_1 == pytest.approx(returns - values, abs=1e-9)
    same_rollout = np.append(steps.rollouts[1:] == steps.rollouts[:-1], False)
    following = np.where(same_rollout, np.append(values[1:], 0.0), 0.0)
    assert at_0 == pytest.approx(steps.rewards + gamma * following - values, abs=1e-9)


@given(ROLLOUTS)
def test_outcomes_only_and_no_discount_make_gae_the_leave_one_out_group(
    rollouts: list[Rollout],
) -> None:
    judged = [Rollout([0.0] * len(r.rewards), outcome=r.outcome, task=r.task) for r in rollouts]
    steps, options = together(judged), Options(gamma=1.0, lam=1.0)
    expected = METHODS["group"](steps, options)
    assert METHODS["gae"](steps, options) == pytest.approx(expected, abs=1e-9)


def test_gae_of_two_rollouts_is_what_verl_computes_with_each_others_returns_as_values() -> None:
    # Computed once, in torch, by the recursion of verl's compute_gae_advantage_return, unwhitened.
    pair = [Rollout([0, 1, 0, 2]), Rollout([1, 0, 0, 0])]
    result = apart(METHODS["gae"](together(pair), Options(gamma=0.9, lam=0.8)), pair)
    assert result[0] == pytest.approx([0.466496, 2.0368, 1.44, 2.0])
    assert result[1] == pytest.approx([-0.466496, -2.0368, -1.44, -2.0])


def test_rollout_that_was_cut_off_is_worth_what_its_task_still_promises() -> None:
    rest = Rollout([0.0, 0.0, 1.0])
    ended = METHODS["gae"](together([Rollout([0.0]), rest]), Options(lam=1.0))
    cut = METHODS["gae"](together([Rollout([0.0], truncated=True), rest]), Options(lam=1.0))
    assert (ended[0], cut[0]) == (-1.0, 0.0)


def test_value_that_is_fitted_to_a_single_call_is_its_return() -> None:
    steps = together([Rollout([3.0]), Rollout([1.0, 5.0], task=1)])
    assert fitted(steps.rewards, steps).at[0] == 3.0
