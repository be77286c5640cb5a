"""Missing rewards: the bound of the gain holds whatever they are."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from otel_lightning.learner.evaluate.gains import Compared
from otel_lightning.learner.evaluate.gate import Requirements, held_out_verdict
from otel_lightning.learner.evaluate.reward_range import Rewards
from otel_lightning.learner.policy.gate.judge import learn_and_judge
from otel_lightning.learner.policy.gate.worst_case import worst_verdict
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings, logged_under

SETTINGS = Settings(steps=300, learning_rate=3.0)
EVEN = dict.fromkeys("abc", 1 / 3)
WANTED = Requirements(Rewards((0.0, 1.0)))


def logged(seed: int, means: tuple[float, ...], count: int) -> Choices:
    rng = np.random.default_rng(seed)
    taken = rng.integers(len(means), size=count)
    rewards = (rng.random(count) < np.array(means)[taken]).astype(float)
    even = np.full(count, 1 / len(means))
    return Choices(tuple("abc"[: len(means)]), taken, even, rewards, np.arange(count) // 3)


def judged(choices: Choices) -> tuple[str, ...]:
    in_train = choices.tasks % 2 == 0
    return learn_and_judge(choices, in_train, EVEN, SETTINGS, WANTED).verdict.refusals


@pytest.mark.parametrize("seed", range(3))
def test_no_rewards_in_the_place_of_missing_ones_give_a_smaller_bound(seed: int) -> None:
    choices = logged(seed, (0.3, 0.5, 0.8), 60)
    new, live, model = np.array([0.1, 0.2, 0.7]), np.full(3, 1 / 3), np.array([0.4, 0.5, 0.6])
    gone = np.arange(0, 60, 10)

    def bound(rewards: np.ndarray) -> float:
        part = replace(choices, rewards=rewards)
        both = Compared(logged_under(part, new, model), logged_under(part, live, model), part.tasks)
        if np.isnan(rewards).any():
            return worst_verdict(both, np.ones(60, bool), WANTED).lower
        return held_out_verdict(both, WANTED, both).lower

    missing = choices.rewards.copy()
    missing[gone] = np.nan
    possible = []
    for values in product((0.0, 1.0), repeat=len(gone)):
        rewards = choices.rewards.copy()
        rewards[gone] = values
        possible.append(bound(rewards))
    assert bound(missing) == pytest.approx(min(possible))


def test_passed_policy_has_the_number_of_tasks_that_are_enough_with_missing_rewards_at_worst() -> (
    None
):
    choices = logged(2, (0.1, 0.1, 0.9), 1200)
    some = choices.rewards.copy()
    some[::50] = np.nan
    needed = []
    for rewards in (choices.rewards, some):
        part = replace(choices, rewards=rewards)
        verdict = learn_and_judge(part, part.tasks % 2 == 0, EVEN, SETTINGS, WANTED).verdict
        assert verdict.passed
        assert verdict.tasks >= 199
        needed.append(verdict.tasks_needed or np.inf)
    assert 10 <= needed[0] < needed[1] < 100


def test_arm_whose_failures_are_missing_and_whose_rivals_successes_are_too_does_not_pass() -> None:
    """Both arms miss a fifth of their rewards; the one that looks better is worse."""
    choices = logged(0, (0.55, 0.5, 0.5), 6000)
    rng = np.random.default_rng(1)
    failed = choices.rewards == 0
    lost = np.where(choices.taken == 0, np.where(failed, 0, 0.2 / 0.55), 0.2)
    lost = np.where(choices.taken == 2, np.where(failed, 0.4, 0), lost)
    gone = rng.random(6000) < lost
    assert judged(choices.where(~gone)) == ()  # it would pass if they were left out
    (reason,) = judged(replace(choices, rewards=np.where(gone, np.nan, choices.rewards)))
    assert "held-out rollouts have no reward" in reason
    assert "--missing" in reason


def test_few_missing_rewards_do_not_hide_a_large_gain() -> None:
    choices = logged(0, (0.3, 0.3, 0.8), 3000)
    rewards = choices.rewards.copy()
    rewards[::50] = np.nan
    assert judged(replace(choices, rewards=rewards)) == ()


def test_missing_rewards_teach_nothing() -> None:
    choices = logged(0, (0.3, 0.3, 0.8), 900)
    rewards = choices.rewards.copy()
    rewards[::9] = np.nan
    in_train = choices.tasks % 2 == 0
    known = ~np.isnan(rewards)
    whole = replace(choices, rewards=rewards)
    one = learn_and_judge(whole, in_train, EVEN, SETTINGS, WANTED)
    other = learn_and_judge(choices.where(known), in_train[known], EVEN, SETTINGS, WANTED)
    assert one.shares == pytest.approx(other.shares)
    assert one.verdict.gain == pytest.approx(other.verdict.gain)
