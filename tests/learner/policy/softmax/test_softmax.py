import numpy as np
import pytest
from support.examples import first_quick

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.gate import Requirements
from otel_lightning.learner.evaluate.off_policy import METHODS
from otel_lightning.learner.evaluate.reward_range import Rewards
from otel_lightning.learner.policy.gate.judge import learn_and_judge
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.ascent import behavior_of, divergence
from otel_lightning.learner.policy.softmax.cells import cells_of
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings, reward_model
from otel_lightning.learner.policy.softmax.contextual import learn_shares as learn
from otel_lightning.learner.policy.softmax.objectives import GRADIENTS

MEANS = np.array([0.55, 0.60, 0.75, 0.45])
BEST = 2
UNIFORM = np.full(4, 0.25)


def bandit(seed: int, behavior: np.ndarray, count: int = 400) -> Choices:
    rng = np.random.default_rng(seed)
    taken = rng.choice(4, size=count, p=behavior)
    rewards = (rng.random(count) < MEANS[taken]).astype(float)
    return Choices(("a", "b", "c", "d"), taken, behavior[taken], rewards, np.arange(count))


@pytest.mark.parametrize("estimator", first_quick(sorted(GRADIENTS)))
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
    live, wanted = {"a": 0.5, "b": 0.5}, Requirements(Rewards((0.0, 1.0)))
    judged = learn_and_judge(choices, in_train, live, Settings(exploration=0.9), wanted)
    assert judged.shares[2] == pytest.approx(0.3)
    assert judged.verdict.gain == pytest.approx(-0.75 * 0.3, abs=0.05)


def test_strong_pull_keeps_what_was_served() -> None:
    behavior = np.array([0.4, 0.3, 0.2, 0.1])
    probabilities = learn(bandit(0, behavior, 4000), Settings(kl_weight=50, exploration=0.04))
    assert probabilities == pytest.approx(behavior, abs=0.03)


def test_arm_never_tried_is_not_preferred() -> None:
    choices = bandit(0, np.array([0.4, 0.3, 0.3, 0.0]))
    for estimator in GRADIENTS:
        assert learn(choices, Settings(estimator=estimator))[3] < 0.06, estimator


ESTIMATES = {"doubly_robust": "doubly_robust", "ips": "clipped_ips", "snips": "snips"}


@pytest.mark.parametrize("estimator", sorted(ESTIMATES))
@pytest.mark.parametrize("features", [0, 2])
def test_gradient_is_the_derivative_of_the_estimate(estimator: str, features: int) -> None:
    choices = bandit(5, np.array([0.85, 0.09, 0.04, 0.02]))  # clipped for some arms
    values = np.random.default_rng(0).integers(2, size=(400, features)).astype(float)
    inputs = np.concatenate([np.ones((400, 1)), values], axis=1)
    cells = cells_of(choices, inputs)
    rows = [int((cells.inputs == row).all(axis=1).argmax()) for row in inputs]
    pi = np.random.default_rng(1).dirichlet(np.ones(4), size=len(cells.shares))
    model = np.random.default_rng(2).random((len(cells.shares), 4))

    def value(probabilities: np.ndarray) -> float:
        seen = contextual.logged_under(choices, probabilities[rows], model[rows])
        return METHODS[ESTIMATES[estimator]](seen).value

    numeric = np.zeros_like(pi)
    for place in np.ndindex(pi.shape):
        step = np.zeros_like(pi)
        step[place] = 1e-6
        numeric[place] = (value(pi + step) - value(pi - step)) / 2e-6
    assert GRADIENTS[estimator](cells, model)(pi) == pytest.approx(numeric, abs=1e-6)


def test_reinforce_clips_weights_and_subtracts_the_mean_before() -> None:
    """Worked by hand: baselines 0 and 0.1; importance weights 0.8 and 5, which was 8."""
    choices = Choices(
        ("a", "b"),
        np.array([0, 1]),
        np.array([0.25, 0.1]),
        np.array([1.0, 1.0]),
        np.array([0, 1]),
    )
    cells = cells_of(choices, np.ones((2, 1)), baseline=True)
    pi = np.array([[0.2, 0.8]])
    slope = GRADIENTS["reinforce"](cells, np.zeros((1, 2)))(pi)
    assert slope[0] == pytest.approx([0.8 * 1.0 / 0.2 / 2, 5 * 0.9 / 0.8 / 2])


@pytest.mark.parametrize("estimator", sorted(GRADIENTS))
def test_policy_with_features_learns_by_every_objective(estimator: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(2, size=(1500, 1)).astype(float)
    taken = rng.integers(2, size=1500)
    good = np.where((taken == 1) == (values[:, 0] > 0), 0.8, 0.2)
    rewards = (rng.random(1500) < good).astype(float)
    choices = Choices(("a", "b"), taken, np.full(1500, 0.5), rewards, np.arange(1500))
    settings = Settings(estimator=estimator)
    policy, _ = contextual.learn(choices, values, ("x",), settings)
    low, high = policy.probabilities(np.array([[0.0], [1.0]]))
    assert low[0] > 0.8
    assert high[1] > 0.8


def test_entropy_spreads_the_shares() -> None:
    plain, spread = (learn(bandit(0, UNIFORM), Settings(entropy=w)) for w in (0.0, 2.0))
    assert plain.max() > 0.8
    assert spread.max() < 0.4


def test_trust_region_limits_the_divergence_from_the_logged_shares() -> None:
    choices = bandit(0, UNIFORM)
    cells, behavior = cells_of(choices, np.ones((400, 1))), behavior_of(choices)
    free, held = (learn(choices, Settings(trust_region=limit)) for limit in (None, 0.05))
    assert divergence(cells, free[None], behavior) > 0.5
    assert divergence(cells, held[None], behavior) == pytest.approx(0.05, rel=1e-3)
    assert held.argmax() == BEST


def test_cells_of_a_million_rollouts_are_as_few_as_their_inputs() -> None:
    choices = bandit(0, UNIFORM)
    inputs = np.concatenate([np.ones((400, 1)), (np.arange(400) % 3)[:, None]], axis=1)
    cells = cells_of(choices, inputs)
    assert cells.inputs.tolist() == [[1, 0], [1, 1], [1, 2]]
    assert len(cells.place) == 12
    assert cells.table(cells.rewards).sum() == pytest.approx(choices.rewards.mean())


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
