import numpy as np
import pytest

from otel_lightning.learner.evaluate.gate import effective_sample_size, importance_weights, judge
from otel_lightning.learner.evaluate.off_policy import Logged


def logged_bandit(rng: np.random.Generator, means: list[float], count: int) -> Logged:
    """A policy that prefers arm 1, seen from uniform choices between two arms."""
    arm = rng.integers(2, size=count)
    rewards = (rng.random(count) < np.array(means)[arm]).astype(float)
    return Logged.without_model(rewards, np.array([0.2, 1.8])[arm])


def test_clear_gain_passes() -> None:
    logged = logged_bandit(np.random.default_rng(0), [0.3, 0.7], 200)
    verdict = judge(logged, np.arange(200), "snips")
    assert verdict.passed
    assert 0 < verdict.lower < verdict.gain < verdict.upper
    # The new policy is worth 0.1 * 0.3 + 0.9 * 0.7 = 0.66, the behavior policy 0.5.
    assert verdict.lower < 0.16 < verdict.upper


def test_noise_is_refused_as_often_as_its_confidence_says() -> None:
    rng, passed = np.random.default_rng(1), 0
    for seed in range(100):
        verdict = judge(logged_bandit(rng, [0.5, 0.5], 120), np.arange(120), "snips", seed)
        passed += verdict.passed
    # Chance lets 5 of 100 through; three binomial standard deviations are 6.5.
    assert passed <= 11


def test_worse_policy_is_refused() -> None:
    logged = logged_bandit(np.random.default_rng(2), [0.7, 0.3], 200)
    verdict = judge(logged, np.arange(200), "snips")
    assert not verdict.passed
    assert "the gain may be chance" in verdict.refusals[0]


def test_rollouts_of_one_task_count_as_one() -> None:
    logged = logged_bandit(np.random.default_rng(3), [0.1, 0.9], 90)
    verdict = judge(logged, np.arange(90) % 9, "snips")
    (refusal,) = verdict.refusals
    assert refusal.startswith("9 held-out tasks are too few to judge by (10 needed")


def test_interval_is_wider_when_rollouts_of_a_task_are_copies() -> None:
    once = logged_bandit(np.random.default_rng(4), [0.4, 0.6], 50)
    rows = np.repeat(np.arange(50), 8)
    copies = once.take(rows)
    as_copies = judge(copies, rows, "snips")
    as_if_independent = judge(copies, np.arange(400), "snips")
    assert as_copies.lower < as_if_independent.lower


def test_few_heavy_weights_are_refused() -> None:
    weights = np.full(100, 0.01)
    weights[0] = 50.0
    rewards = (np.arange(100) == 0).astype(float)
    verdict = judge(Logged.without_model(rewards, weights), np.arange(100), "snips")
    assert any("effective sample of 1.0 rollouts" in reason for reason in verdict.refusals)


@pytest.mark.parametrize("count", [0, 20])
def test_what_cannot_be_measured_is_refused(count: int) -> None:
    nothing = Logged.without_model(np.zeros(count), np.zeros(count))
    assert not judge(nothing, np.arange(count), "snips").passed


def test_effective_sample_size_of_equal_weights_is_their_number() -> None:
    assert effective_sample_size(np.full(7, 3.0)) == pytest.approx(7)


def test_importance_weights_are_ratios_up_to_the_clip() -> None:
    new, behavior = np.log([0.6, 0.1, 0.9]), np.log([0.3, 0.2, 0.01])
    weights = importance_weights(new, behavior, clip=10.0)
    assert weights.tolist() == pytest.approx([2.0, 0.5, 10.0])
