"""Rounding never makes one of two equal rollouts the better one."""

import itertools
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_steps import Rollout, together

from otel_lightning.learner.credit import METHODS, Options, advantages, compares
from otel_lightning.learner.credit.steps import Baseline, Scale, Value

SETTINGS = [
    Options(baseline=baseline, scale=scale, value=value)
    for baseline, scale, value in itertools.product(
        get_args(Baseline), get_args(Scale), get_args(Value)
    )
]
REWARDS = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda reward: abs(reward) > 1e-6)


@pytest.mark.parametrize("credit", [m for m in METHODS if compares(m, Options())])
@given(reward=REWARDS, count=st.integers(2, 9), options=st.sampled_from(SETTINGS))
def test_rollouts_with_equal_rewards_have_advantages_of_exactly_0(
    credit: str, reward: float, count: int, options: Options
) -> None:
    rollouts = [Rollout([0.0, reward], states=[0, 1]) for _ in range(count)]
    assert set(advantages(credit, together(rollouts), options)) <= {0.0} or (
        options.value == "fitted" and credit == "gae"  # it compares a rollout with its own trend
    )


@pytest.mark.parametrize("credit", ["group", "gae"])
@given(options=st.sampled_from(SETTINGS), scale=st.sampled_from([1e-9, 1.0, 1e9]))
def test_returns_that_are_equal_but_for_the_order_of_their_sum_are_ties(
    credit: str, options: Options, scale: float
) -> None:
    parts = [[0.1, 0.2], [0.3], [0.1, 0.1, 0.1], [0.2, 0.1]]
    tied = together([Rollout([scale * reward for reward in rewards]) for rewards in parts])
    first = advantages(credit, tied, options)[0]
    assert first == 0.0 or (options.value == "fitted" and credit == "gae")


@pytest.mark.parametrize("credit", ["identical", "return_to_go"])
def test_rewards_that_add_up_to_nothing_are_worth_exactly_0(credit: str) -> None:
    assert advantages(credit, together([Rollout([0.1, 0.2, -0.3])]), Options())[0] == 0.0


def test_a_comparison_without_a_unit_survives_rewards_of_any_size() -> None:
    large = together([Rollout([1e13]), Rollout([0.0])])
    first, second = advantages("group", large, Options(scale="std"))
    assert first == -second == pytest.approx(1.0, abs=0.5)


def test_two_methods_that_cancel_each_other_add_up_to_exactly_0() -> None:
    rollouts = [Rollout([0.3], states=[0]), Rollout([0.1, 0.1], states=[0, 1])]
    against = advantages("group+anchor_state", together(rollouts), Options(step_weight=-1.0))
    assert against[0] == 0.0


@pytest.mark.parametrize("scale", ["none", "std"])
@given(reward=st.sampled_from([1e-9, 0.7, 1e3, 1e12]))
def test_small_but_real_difference_is_no_tie(scale: Scale, reward: float) -> None:
    rollouts = [Rollout([reward]), Rollout([reward * (1 + 1e-9)])]
    worse, better = advantages("group", together(rollouts), Options(scale=scale))
    assert worse < 0 < better


@pytest.mark.parametrize("credit", list(METHODS))
@pytest.mark.parametrize("options", SETTINGS[:: len(get_args(Scale))])
def test_a_method_compares_rollouts_if_the_only_one_of_a_task_gets_nothing(
    credit: str, options: Options
) -> None:
    alone = together([Rollout([1.0, 0.25, 2.0], outcome=3.0, tools=[0.5, 0.0, 1.0])])
    gets_nothing = not advantages(credit, alone, options).any()
    assert compares(credit, options) is gets_nothing
