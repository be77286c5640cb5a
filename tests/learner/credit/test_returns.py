"""The methods of one rollout alone, against their definitions written out."""

import pytest
from hypothesis import given
from support.made_steps import ROLLOUTS, SHARES, Rollout, apart, together

from otel_lightning.learner.credit import METHODS, Options


def advantages(method: str, rollouts: list[Rollout], options: Options) -> list[list[float]]:
    return apart(METHODS[method](together(rollouts), options), rollouts)


@given(ROLLOUTS)
def test_identical_gives_every_call_all_that_the_rollout_earned(rollouts: list[Rollout]) -> None:
    for rollout, given_out in zip(
        rollouts, advantages("identical", rollouts, Options()), strict=True
    ):
        assert given_out == pytest.approx([sum(rollout.earned)] * len(rollout.rewards))


@given(ROLLOUTS, SHARES)
def test_return_to_go_is_the_discounted_sum_of_what_follows(
    rollouts: list[Rollout], gamma: float
) -> None:
    results = advantages("return_to_go", rollouts, Options(gamma=gamma))
    for rollout, returns in zip(rollouts, results, strict=True):
        for t, value in enumerate(returns):
            powers = [gamma**k * r for k, r in enumerate(rollout.earned[t:])]
            assert value == pytest.approx(sum(powers), abs=1e-9)


@given(ROLLOUTS, SHARES)
def test_intermediate_reward_counts_where_it_was_earned_and_the_outcome_for_all(
    rollouts: list[Rollout], gamma: float
) -> None:
    results = advantages("intermediate", rollouts, Options(gamma=gamma))
    for rollout, result in zip(rollouts, results, strict=True):
        last = len(rollout.rewards) - 1
        expected = [
            r + gamma ** (last - t) * rollout.outcome for t, r in enumerate(rollout.rewards)
        ]
        assert result == pytest.approx(expected, abs=1e-9)


@given(ROLLOUTS, SHARES)
def test_tool_outcome_adds_successes_and_takes_failures_where_they_were_asked_for(
    rollouts: list[Rollout], gamma: float
) -> None:
    options = Options(gamma=gamma, tool_reward=0.25)
    plain = advantages("intermediate", rollouts, options)
    with_tools = advantages("tool_outcome", rollouts, options)
    for rollout, before, after in zip(rollouts, plain, with_tools, strict=True):
        expected = [x + 0.25 * net for x, net in zip(before, rollout.tools, strict=True)]
        assert after == pytest.approx(expected, abs=1e-9)


def test_return_to_go_gives_sutton_and_bartos_returns() -> None:
    # Reinforcement Learning, 2nd ed., exercise 3.8: gamma 0.5, rewards -1, 2, 6, 3, 2.
    exercise = [Rollout([-1.0, 2.0, 6.0, 3.0, 2.0])]
    [returns] = advantages("return_to_go", exercise, Options(gamma=0.5))
    assert returns == [2.0, 6.0, 8.0, 4.0, 2.0]


def test_rollout_of_a_hundred_thousand_calls_is_discounted_as_one() -> None:
    [returns] = advantages("return_to_go", [Rollout([0.0] * 99_999 + [1.0])], Options(gamma=1.0))
    assert returns == [1.0] * 100_000
