from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import first_quick

from otel_lightning.learner.evaluate import intervals
from otel_lightning.learner.evaluate.betting import Scores, log_wealth, lower_bound
from otel_lightning.learner.evaluate.estimates import (
    MAX_SHARE_OF_ONE_VALUE,
    _influence_on_model,
    _is_normal,
    estimate_value,
)
from otel_lightning.learner.evaluate.gains import per_task
from otel_lightning.learner.evaluate.off_policy import METHODS, Estimate, Logged
from otel_lightning.learner.evaluate.off_policy.logged import Fit

UNIT = (0.0, 1.0)
BEHAVIOR, POLICY = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])
MEANS, MODEL = np.array([0.2, 0.5, 0.8]), np.array([0.3, 0.5, 0.7])


def bandit(rng: np.random.Generator, count: int) -> Logged:
    arm = rng.choice(3, size=count, p=BEHAVIOR)
    rewards = (rng.random(count) < MEANS[arm]).astype(float)
    model = np.full(count, POLICY @ MODEL)
    return Logged(rewards, (POLICY / BEHAVIOR)[arm], MODEL[arm], model)


@pytest.mark.parametrize("method", ["ips", "snips", "doubly_robust"])
def test_intervals_hold_the_value_as_often_as_they_claim(method: str) -> None:
    rng, truth, count = np.random.default_rng(0), float(POLICY @ MEANS), 60
    held = dict.fromkeys(("normal", "bootstrap", "bernstein", "betting"), 0)
    for _ in range(count):
        one = estimate_value(method, bandit(rng, 800), np.arange(800), UNIT)
        for name in held:
            interval = getattr(one, name)
            held[name] += interval is None or interval[0] <= truth <= interval[1]
    # 95 % of 60 less three binomial standard deviations of 1.7.
    assert min(held.values()) >= 52, held


@pytest.mark.parametrize("size", [4, 1])
@pytest.mark.parametrize("at_most", [0.99, 1.01])
def test_a_mean_is_normal_up_to_the_largest_square_that_its_sum_allows(
    size: int, at_most: float
) -> None:
    # 100 tasks of `size` rollouts, half of which succeed: a rollout's variance is .25, and the
    # expected sum of squares of the tasks' means is 100 * .25 / size, of which 1 % is allowed.
    tasks = np.repeat(np.arange(100), size)
    rewards = np.tile([0.0, 1.0], 50 * size)
    logged = Logged.without_model(rewards, np.ones(100 * size))
    largest = (
        at_most * (MAX_SHARE_OF_ONE_VALUE * 25 / size) ** 0.5 * size
    )  # of one rollout in a task's mean
    means = per_task(rewards, tasks)
    assert _is_normal(METHODS["ips"], logged, means, tasks, (0.0, largest)) == (at_most < 1)


@pytest.mark.parametrize("at_most", [0.99, 1.01])
def test_rollouts_that_agree_within_a_task_count_as_one_value(at_most: float) -> None:
    tasks = np.repeat(np.arange(100), 4)
    rewards = np.repeat(np.tile([0.0, 1.0], 50), 4)
    logged = Logged.without_model(rewards, np.ones(400))
    largest = at_most * (MAX_SHARE_OF_ONE_VALUE * 25 / 4) ** 0.5
    means = per_task(rewards, tasks)
    assert _is_normal(METHODS["ips"], logged, means, tasks, (0.0, largest)) == (at_most < 1)


def test_heavy_weights_in_some_tasks_do_not_make_rollouts_of_a_task_agree() -> None:
    # Rewards of .9 and 1, and weights of .1 and 1.9, all independent: with 200 tasks of 4 rollouts
    # the mean is normal unless each task counts as one value.
    rng = np.random.default_rng(4)
    rewards, weights = rng.choice([0.9, 1.0], 800), rng.choice([0.1, 1.9], 800)
    logged = Logged.without_model(rewards, weights)
    assert estimate_value("snips", logged, np.repeat(np.arange(200), 4), (0.9, 1.0)).normal


def test_each_task_moves_the_fit_by_the_mean_of_its_weighted_residuals() -> None:
    fit = Fit({"direct_method": np.array([2.0, 4.0, 3.0])}, np.array([0.5, 0.5, 1.0]))
    logged = replace(Logged.without_model(np.array([1.0, 0.0, 3.0]), np.ones(3)), fit=fit)
    # Products 1, -2 and 6: means -.5 and 6 of the tasks, less their mean of 2.75.
    assert _influence_on_model(METHODS["direct_method"], logged, np.array([0, 0, 1])).tolist() == [
        -3.25,
        3.25,
    ]
    assert _influence_on_model(METHODS["ips"], logged, np.array([0, 0, 1])).tolist() == [0.0, 0.0]


def test_the_bootstrap_does_not_depend_on_the_unit_of_the_weights() -> None:
    rng = np.random.default_rng(3)
    weights = rng.random(50)
    one = Estimate(weights * rng.random(50), weights)
    thousandth = Estimate(one.numerators / 1000, one.denominators / 1000)
    assert intervals.bootstrap(thousandth) == pytest.approx(intervals.bootstrap(one))


def test_betting_is_tighter_than_bernstein() -> None:
    one = estimate_value(
        "doubly_robust", bandit(np.random.default_rng(1), 800), np.arange(800), UNIT
    )
    assert one.bernstein is not None
    assert one.betting is not None
    assert one.bernstein[0] < one.betting[0] < one.value < one.betting[1] < one.bernstein[1]


SKEWED = np.array([0.85, 0.1, 0.05])
USED = {  # the weights of the three arms, 0.12, 2 and 14, as each method uses them
    "clipped_ips": np.minimum(POLICY / SKEWED, 10),
    "switch_dr": np.where(POLICY / SKEWED <= 10, POLICY / SKEWED, 0),
    "dr_os": 100 * (POLICY / SKEWED) / ((POLICY / SKEWED) ** 2 + 100),
}


def skewed_bandit(rng: np.random.Generator, count: int) -> Logged:
    """Weights of up to 14, so that clipping, leaving out and shrinking have a bias."""
    arm = rng.choice(3, size=count, p=SKEWED)
    rewards = (rng.random(count) < MEANS[arm]).astype(float)
    return Logged(rewards, (POLICY / SKEWED)[arm], MODEL[arm], np.full(count, POLICY @ MODEL))


@pytest.mark.parametrize("method", first_quick(sorted(USED)))
def test_intervals_of_biased_estimators_hold_their_own_mean_as_often_as_they_claim(
    method: str,
) -> None:
    used = SKEWED * USED[method]
    own = float(used @ MEANS)
    if method != "clipped_ips":
        own = float(POLICY @ MODEL + used @ (MEANS - MODEL))
    assert abs(own - POLICY @ MEANS) > 0.01  # biased indeed
    rng, count = np.random.default_rng(3), 30
    held = dict.fromkeys(("normal", "bootstrap", "bernstein", "betting"), 0)
    for _ in range(count):
        one = estimate_value(method, skewed_bandit(rng, 12_000), np.arange(12_000), UNIT)
        assert one.biased
        for name in held:
            interval = getattr(one, name)
            assert interval is not None
            held[name] += interval[0] <= own <= interval[1]
    # 95 % of 30 less three binomial standard deviations of 1.2.
    assert min(held.values()) >= 25, held


# Known answers: standard error and percentile interval of scipy.stats.bootstrap (scipy 1.17) over
# the scores of these rollouts, with 20,000 resamples.
@pytest.mark.parametrize(
    ("method", "error", "low", "high"),
    [
        ("clipped_ips", 0.028847, 0.864361, 0.977209),
        ("switch_dr", 0.003362, 0.603451, 0.616595),
        ("dr_os", 0.007251, 0.642973, 0.671628),
    ],
)
def test_bootstrap_of_biased_estimators_is_that_of_scipy(
    method: str, error: float, low: float, high: float
) -> None:
    i = np.arange(9000)
    arm = np.maximum(i % 10 - 7, 0)
    rewards = ((i * 7919) % 100 / 100 < MEANS[arm]).astype(float)
    weights = np.array([0.125, 2.0, 14.0])[arm]
    logged = Logged(rewards, weights, MODEL[arm], np.full(9000, POLICY @ MODEL))
    one = estimate_value(method, logged, i, UNIT)
    assert one.standard_error == pytest.approx(error, rel=0.03)
    assert one.bootstrap == pytest.approx((low, high), abs=0.3 * error)


def test_direct_method_without_a_fitted_model_varies_by_its_predictions_alone() -> None:
    one = estimate_value(
        "direct_method", bandit(np.random.default_rng(2), 800), np.arange(800), UNIT
    )
    assert one.value == pytest.approx(POLICY @ MODEL)
    assert one.standard_error == pytest.approx(0, abs=1e-12)


def test_normal_and_bootstrap_are_refused_where_a_possible_loss_was_not_drawn() -> None:
    logged = Logged.without_model(np.full(100, 0.7) + np.arange(100) / 1000, np.ones(100))
    one = estimate_value("ips", logged, np.arange(100), (-10.0, 1.0))
    assert one.normal is None
    assert one.bootstrap is None
    assert one.betting is not None
    assert one.betting[0] < 0.5


def test_empirical_bernstein_is_the_bound_of_the_paper() -> None:
    means = np.array([0.0, 1.0] * 200)
    log, variance = np.log(80), 0.25 * 400 / 399
    reach = np.sqrt(2 * variance * log / 400) + 7 * log / (3 * 399)
    assert intervals.empirical_bernstein(means, UNIT) == pytest.approx((0.5 - reach, 0.5 + reach))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.01, 0.9))
def test_wealth_is_the_mean_over_bets_of_their_products(values: list[float], mean: float) -> None:
    fractions = 0.95 * 0.5 ** np.arange(13)
    parts = 0.5 / 13 + 0.5 * fractions / fractions.sum()
    products = [np.prod(1 + f * (np.array(values) - mean) / mean) for f in fractions]
    wealth = log_wealth(Scores(np.array(values), 0.0), mean)
    assert wealth == pytest.approx(np.log(parts @ np.array(products)), abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_lower_bound_is_below_the_mean_and_above_the_least_value(values: list[float]) -> None:
    bound = lower_bound([Scores(np.array(values), 0.0)])
    assert 0 <= bound <= np.mean(values) + 1e-12


def test_wealth_of_a_fair_game_does_not_grow_in_the_mean() -> None:
    # The expectation over all 2^10 outcomes of ten fair coins is exactly 1.
    coins = np.array(np.meshgrid(*[[0.0, 1.0]] * 10)).reshape(10, -1).T
    wealth = [np.exp(log_wealth(Scores(row, 0.0), 0.5)) for row in coins]
    assert np.mean(wealth) == pytest.approx(1)


def test_bootstrap_resamples_tasks_and_not_rollouts() -> None:
    rng = np.random.default_rng(3)
    rewards = np.repeat((rng.random(60) < 0.5).astype(float), 10)
    estimate = METHODS["ips"](Logged.without_model(rewards, np.ones(600)))
    by_task, by_row = (
        intervals.bootstrap(intervals.by_task(estimate, tasks))
        for tasks in (np.repeat(np.arange(60), 10), np.arange(600))
    )
    assert by_task[1] - by_task[0] > 2 * (by_row[1] - by_row[0])


def test_bootstrap_counts_draws_without_any_weight_as_the_worst() -> None:
    weights = np.zeros(40)
    weights[0] = 40.0
    estimate = METHODS["snips"](Logged.without_model(np.ones(40), weights))
    low, high = intervals.bootstrap(intervals.by_task(estimate, np.arange(40)))
    assert (low, high) == (-np.inf, np.inf)


def test_bootstrap_of_many_tasks_agrees_with_the_normal_approximation() -> None:
    rng = np.random.default_rng(4)
    estimate = METHODS["ips"](Logged.without_model(rng.random(50_000), np.ones(50_000)))
    by_task = intervals.by_task(estimate, np.arange(50_000))
    assert intervals.bootstrap(by_task) == pytest.approx(by_task.interval, abs=4e-4)


def test_values_that_rounding_put_below_the_least_one_give_the_least_bound() -> None:
    values = np.concatenate([np.full(50, -1.0 - 1e-7), np.full(2, 0.5)])
    bound = lower_bound([Scores(values, -1.0)])
    assert -1.0 <= bound < values.mean()


def skewed(seed: int, count: int) -> Logged:
    """A rare arm is evaluated: weights of 30 in a thirtieth of the rollouts, as designed."""
    rng = np.random.default_rng(seed)
    rewards = (rng.random(count) < 0.5).astype(float)
    weights = np.where(rng.random(count) < 1 / 30, 30.0, 0.0)
    rare = weights > 0
    drawn = rare.mean()
    expected = np.where(rare, 1 / 30 / drawn, 29 / 30 / (1 - drawn))
    return replace(Logged.without_model(rewards, weights), expected=expected)


@pytest.mark.parametrize(("count", "given"), [(3600, False), (9000, True)])
def test_normal_intervals_are_given_by_the_design_and_not_by_the_draw(
    count: int,
    given: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Were they given where many rare rollouts were drawn, they would hold less often."""
    for seed in range(20):
        one = estimate_value("ips", skewed(seed, count), np.arange(count), UNIT)
        assert (one.normal is not None) is given


def test_interval_is_wider_by_the_worth_of_actions_that_were_never_logged() -> None:
    seen = skewed(0, 9000)
    partly = replace(seen, unseen=0.1)
    whole, part = (estimate_value("ips", one, np.arange(9000), UNIT) for one in (seen, partly))
    assert part.normal is None
    assert part.betting is not None
    assert whole.betting is not None
    assert part.betting == pytest.approx((whole.betting[0] - 0.1, whole.betting[1] + 0.1))
