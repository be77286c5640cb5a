import numpy as np
import pytest

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.off_policy import METHODS
from otel_lightning.learner.policy.learn import learn_and_judge
from otel_lightning.learner.policy.softmax import (
    GRADIENTS,
    Choices,
    Settings,
    learn,
    reward_model,
    seen_by,
)

MEANS = np.array([0.55, 0.60, 0.75, 0.45])
BEST = 2
UNIFORM = np.full(4, 0.25)


def bandit(seed: int, behavior: np.ndarray, count: int = 400) -> Choices:
    rng = np.random.default_rng(seed)
    taken = rng.choice(4, size=count, p=behavior)
    rewards = (rng.random(count) < MEANS[taken]).astype(float)
    return Choices(("a", "b", "c", "d"), taken, behavior[taken], rewards, np.arange(count))


@pytest.mark.parametrize("estimator", sorted(GRADIENTS))
def test_it_learns_the_best_arm_of_a_bandit(estimator: str) -> None:
    settings = Settings(estimator=estimator, exploration=0.08)
    learned = np.array([learn(bandit(seed, UNIFORM), settings) for seed in range(20)])
    best_possible = 0.94 * MEANS[BEST] + 0.02 * (MEANS.sum() - MEANS[BEST])
    regret = best_possible - learned @ MEANS
    assert regret.mean() < 0.15 * (best_possible - UNIFORM @ MEANS)


def test_skewed_logging_does_not_hide_the_best_arm() -> None:
    behavior = np.array([0.7, 0.1, 0.1, 0.1])
    probabilities = learn(bandit(0, behavior, count=4000), Settings())
    assert probabilities.argmax() == BEST


def test_no_arm_falls_below_its_part_of_the_exploration() -> None:
    probabilities = learn(bandit(0, UNIFORM), Settings(exploration=0.4))
    assert probabilities.min() >= 0.1
    assert probabilities.sum() == pytest.approx(1)


def test_learning_is_deterministic() -> None:
    first, second = (learn(bandit(3, UNIFORM), Settings()) for _ in range(2))
    assert first.tolist() == second.tolist()


def test_arm_never_tried_is_judged_as_the_worst_possible() -> None:
    # Two arms succeed in 3 of 4 rollouts; nobody knows the third, which gets 0.3 of the traffic.
    taken, rewards = np.tile([0, 1], 2000), np.tile([0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 500)
    choices = Choices(("a", "b", "new"), taken, np.full(4000, 0.5), rewards, np.arange(4000))
    in_train = np.arange(4000) % 3 > 0
    shares, verdict, _ = learn_and_judge(
        choices, in_train, {"a": 0.5, "b": 0.5}, Settings(exploration=0.9), ((0.0, 1.0), 0.0)
    )
    assert shares[2] >= 0.3
    assert verdict.gain == pytest.approx(-0.75 * shares[2], abs=0.05)


def test_strong_pull_keeps_what_was_served() -> None:
    behavior = np.array([0.4, 0.3, 0.2, 0.1])
    probabilities = learn(bandit(0, behavior, 4000), Settings(kl_weight=50, exploration=0.04))
    assert probabilities == pytest.approx(behavior, abs=0.03)


def test_arm_never_tried_is_not_preferred() -> None:
    choices = bandit(0, np.array([0.4, 0.3, 0.3, 0.0]))
    for estimator in GRADIENTS:
        assert learn(choices, Settings(estimator=estimator))[3] < 0.06


@pytest.mark.parametrize("estimator", ["doubly_robust", "ips", "snips"])
def test_gradient_is_the_derivative_of_the_estimate(estimator: str) -> None:
    choices = bandit(5, np.array([0.4, 0.3, 0.2, 0.1]))
    pi, model = np.array([0.1, 0.2, 0.3, 0.4]), reward_model(choices)

    def value(probabilities: np.ndarray) -> float:
        return METHODS[estimator](seen_by(choices, probabilities, model)).value

    step = 1e-6 * np.eye(4)
    numeric = [(value(pi + s) - value(pi - s)) / 2e-6 for s in step]
    assert GRADIENTS[estimator](choices)(pi) == pytest.approx(numeric, abs=1e-6)


def test_untried_arm_is_modelled_as_the_worst_one() -> None:
    choices = bandit(0, np.array([0.4, 0.3, 0.3, 0.0]))
    model = reward_model(choices)
    assert model[3] == model[:3].min()


def test_exploration_is_a_share_of_all_traffic_however_many_arms() -> None:
    rng = np.random.default_rng(0)
    taken = rng.integers(30, size=6000)
    rewards = (rng.random(6000) < np.where(taken == 7, 0.9, 0.3)).astype(float)
    arms = tuple(map(str, range(30)))
    choices = Choices(arms, taken, np.full(6000, 1 / 30), rewards, np.arange(6000))
    probabilities = learn(choices, Settings(exploration=0.1))
    assert probabilities.min() >= 0.1 / 30
    assert probabilities[7] > 0.85


def test_retired_arm_gets_nothing_and_its_rollouts_still_count() -> None:
    choices = bandit(0, UNIFORM)
    served = np.array([True, True, False, True])
    retired = Choices(
        choices.arms, choices.taken, choices.propensities, choices.rewards, choices.tasks, served
    )
    probabilities = learn(retired, Settings())
    assert probabilities[2] == 0
    assert probabilities.sum() == pytest.approx(1)
    assert probabilities.argmax() == 1


def test_exploration_of_everything_is_an_error() -> None:
    with pytest.raises(DataError, match="An exploration of 1 leaves nothing to learn"):
        learn(bandit(0, UNIFORM), Settings(exploration=1.0))
