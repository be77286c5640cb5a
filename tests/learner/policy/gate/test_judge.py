"""New arms are held; a refusal says how many more rollouts of which arm it needs."""

from dataclasses import replace

import numpy as np
import pytest

from otel_lightning.learner.evaluate.gate import Requirements
from otel_lightning.learner.evaluate.reward_range import Rewards
from otel_lightning.learner.evaluate.to_pass import what_would_pass
from otel_lightning.learner.policy.gate.judge import hold_new_arms, learn_and_judge
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings


def bandit(
    seed: int, shares: list[float], means: list[float], count: int, level: float = 0.0
) -> Choices:
    """Draw binary rewards; `level` moves the mean of arm 0."""
    rng = np.random.default_rng(seed)
    mu, right = np.array(shares), np.array(means) + np.eye(len(means))[0] * level
    taken = rng.choice(len(mu), size=count, p=mu)
    rewards = (rng.random(count) < right[taken]).astype(float)
    return Choices(tuple("abcdefgh"[: len(mu)]), taken, mu[taken], rewards, np.arange(count))


def judge(choices: Choices, live: dict[str, float], exploration: float = 0.1):  # noqa: ANN201
    settings = Settings(exploration=exploration, steps=300, learning_rate=3.0)
    return learn_and_judge(
        choices,
        np.arange(len(choices.taken)) % 2 == 0,
        live,
        settings,
        Requirements(Rewards((0.0, 1.0))),
    )


def with_lucky_newcomer(rollouts: int) -> Choices:
    """Two known arms, and a new one whose few rollouts all have the reward 1."""
    known = bandit(0, [0.5, 0.5], [0.3, 0.6], 400)
    first = np.arange(400) < rollouts
    return replace(
        known,
        arms=("a", "b", "new"),
        taken=np.where(first, 2, known.taken),
        rewards=np.where(first, 1.0, known.rewards),
        propensities=np.where(first, 0.05, 0.475),
    )


LIVE = {"a": 0.475, "b": 0.475, "new": 0.05}


def test_new_arm_keeps_its_share_until_it_has_enough_rewarded_rollouts() -> None:
    few, many = (judge(with_lucky_newcomer(count), LIVE).shares for count in (8, 60))
    assert few[2] == pytest.approx(0.05)
    assert many[2] > 0.8
    untried = judge(with_lucky_newcomer(0), {"a": 0.5, "b": 0.5}).shares
    assert untried[2] == pytest.approx(0.1 / 3)
    assert judge(with_lucky_newcomer(8), LIVE, exploration=0.0).shares[2] == pytest.approx(0.05)


def test_arm_with_most_of_the_traffic_is_not_new() -> None:
    choices = with_lucky_newcomer(8)
    assert not len(hold_new_arms(choices, np.array([0.05, 0.05, 0.9]), 0.1).held)


def test_nothing_is_held_where_all_arms_are_new() -> None:
    few = bandit(0, [0.5, 0.5], [0.3, 0.6], 20)
    assert not len(hold_new_arms(few, np.array([0.5, 0.5]), 0.1).held)


def test_refusal_names_the_rollouts_that_would_let_it_pass() -> None:
    """Arm c is rarely logged and better: what is not known is its reward."""
    shares, means = [0.45, 0.45, 0.1], [0.4, 0.4, 0.6]
    live = {"a": 0.5, "b": 0.5}
    refused = judge(bandit(2, shares, means, 300), live).verdict
    assert not refused.passed
    assert set(refused.rollouts_needed) == {"c"}
    # Rollouts of the chosen arm are fewer than more of the same.
    more_of_the_same = 2 * ((refused.tasks_needed or 0) - refused.tasks)
    assert 0 < refused.rollouts_needed["c"] < more_of_the_same / 3
    passed = judge(bandit(3, shares, means, 6000), live).verdict
    assert passed.passed
    assert passed.rollouts_needed == {}


def test_so_many_rollouts_do_let_it_pass_in_most_seeds() -> None:
    """Log the number of rollouts of each arm that the refusal names, and judge again."""
    live, mu, means = {"a": 0.5, "b": 0.5}, np.array([0.4, 0.4, 0.2]), np.array([0.4, 0.4, 0.65])
    passed = tried = 0
    for seed in range(16):
        first = bandit(seed, mu.tolist(), means.tolist(), 300)
        needed = judge(first, live).verdict.rollouts_needed
        if not needed:
            continue
        counts = first.tried + np.array([needed.get(arm, 0) for arm in first.arms])
        total = int(counts.sum())
        if total > 20_000:
            continue
        rng = np.random.default_rng(1000 + seed)
        share = counts / total
        taken = rng.choice(3, size=total, p=share)
        rewards = (rng.random(total) < means[taken]).astype(float)
        again = Choices(first.arms, taken, share[taken], rewards, np.arange(total))
        tried += 1
        passed += judge(again, live).verdict.passed
    assert tried >= 3
    assert passed >= tried * 0.5


def test_rewards_without_variance_need_no_number_of_rollouts() -> None:
    """Each arm has one reward, always: no more rollouts of any arm would teach more."""
    choices = bandit(0, [0.5, 0.5], [1.0, 0.0], 60)
    verdict = judge(choices, {"a": 0.9, "b": 0.1}).verdict
    assert verdict.rollouts_needed == {}


def test_policy_that_is_the_live_one_is_refused_as_such() -> None:
    """Rounding gives it a gain of 1e-9, for which a million rollouts would not be enough."""
    choices = bandit(0, [0.5, 0.5], [0.3, 0.6], 400)
    first = judge(choices, {"a": 0.5, "b": 0.5})
    again = judge(choices, dict(zip("ab", first.shares.tolist(), strict=True)))
    assert first.verdict.passed
    assert again.verdict.refusals == (
        "the learned policy is the live one, so there is nothing to promote",
    )
    assert again.verdict.gain == 0
    assert again.verdict.rollouts_needed == {}
    assert what_would_pass(again.verdict, "policy").endswith("this is the live policy.")
