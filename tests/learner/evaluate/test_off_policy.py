from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_lightning.learner.evaluate.off_policy import METHODS, Logged

OPEN_BANDIT = Path(__file__).parent / "data" / "open_bandit"

# Four logged actions: weights 2, 0.5, 1, 0 and a model that predicts 0.5 for each.
LOGGED = Logged(
    rewards=np.array([1.0, 0.0, 1.0, 1.0]),
    weights=np.array([2.0, 0.5, 1.0, 0.0]),
    modelled_taken=np.full(4, 0.5),
    modelled_policy=np.full(4, 0.6),
)


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("ips", (2 + 0 + 1 + 0) / 4),
        ("snips", (2 + 0 + 1 + 0) / 3.5),
        ("doubly_robust", 0.6 + (2 * 0.5 - 0.5 * 0.5 + 1 * 0.5 + 0) / 4),
        ("clipped_ips", (2 + 0 + 1 + 0) / 4),
        ("direct_method", 0.6),
        ("switch_dr", 0.6 + (2 * 0.5 - 0.5 * 0.5 + 1 * 0.5 + 0) / 4),
        (
            "dr_os",
            0.6 + (200 / 104 * 0.5 - 50 / 100.25 * 0.5 + 100 / 101 * 0.5 + 0) / 4,
        ),
    ],
)
def test_estimate_is_the_value_worked_by_hand(method: str, value: float) -> None:
    assert METHODS[method](LOGGED).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("method", "mean", "deviation"),
    [("ips", 0.311082, 0.311170), ("snips", 0.311795, 0.334736)],
)
def test_relative_error_on_open_bandit_data_is_the_published_one(
    method: str, mean: float, deviation: float
) -> None:
    # Published in st-tech/zr-obp, examples/obd/README.md: ipw and snipw, behavior random,
    # evaluation bts, campaign all, 30 bootstrap samples, random_state 12345.
    impressions = np.loadtxt(
        OPEN_BANDIT / "random_all.csv.gz", delimiter=",", skiprows=1, dtype=np.int64
    )
    item, position, click = impressions.T
    policy = np.loadtxt(OPEN_BANDIT / "bts_all.csv", delimiter=",", skiprows=1)
    logged = Logged.without_model(click.astype(float), policy[item, position] * 80)
    truth = 0.0042
    errors = []
    for seed in range(30):
        drawn = np.random.RandomState(seed).choice(len(click), size=len(click), replace=True)
        errors.append(abs(METHODS[method](logged.take(drawn)).value - truth) / truth)
    assert np.mean(errors) == pytest.approx(mean, abs=5e-7)
    assert np.std(errors, ddof=1) == pytest.approx(deviation, abs=5e-7)


@pytest.mark.parametrize("method", ["clipped_ips", "switch_dr"])
def test_weights_above_the_limit_are_cut(method: str) -> None:
    heavy = replace(LOGGED, weights=np.array([20.0, 0.5, 1.0, 0.0]))
    values = {
        "clipped_ips": (10 + 0 + 1 + 0) / 4,
        "switch_dr": 0.6 + (0 - 0.5 * 0.5 + 1 * 0.5 + 0) / 4,
    }
    assert METHODS[method](heavy).value == pytest.approx(values[method])


def test_shrinkage_lies_between_the_model_and_doubly_robust() -> None:
    model, robust = (METHODS[name](LOGGED).value for name in ("direct_method", "doubly_robust"))
    assert min(model, robust) < METHODS["dr_os"](LOGGED).value < max(model, robust)


@pytest.mark.parametrize("method", ["ips", "snips", "clipped_ips", "doubly_robust", "switch_dr"])
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20))
def test_estimates_of_the_behavior_policy_itself_are_the_mean_reward(
    method: str, rewards: list[float]
) -> None:
    logged = Logged.without_model(np.array(rewards), np.ones(len(rewards)))
    assert METHODS[method](logged).value == pytest.approx(np.mean(rewards), abs=1e-9)


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0.01, 9)), min_size=1, max_size=20),
    st.floats(0.1, 10),
)
def test_snips_stays_within_the_rewards_and_knows_no_scale_of_weights(
    rows: list[tuple[float, float]], scale: float
) -> None:
    rewards, weights = np.array(rows).T
    value = METHODS["snips"](Logged.without_model(rewards, weights)).value
    assert rewards.min() - 1e-9 <= value <= rewards.max() + 1e-9
    scaled = METHODS["snips"](Logged.without_model(rewards, weights * scale)).value
    assert scaled == pytest.approx(value, abs=1e-9)


def test_snips_of_no_weight_at_all_is_unknown() -> None:
    assert np.isnan(METHODS["snips"](Logged.without_model(np.ones(3), np.zeros(3))).value)


@pytest.mark.parametrize("method", ["ips", "snips", "doubly_robust", "switch_dr"])
def test_interval_holds_the_true_value_about_95_times_in_100(method: str) -> None:
    means, policy = np.array([0.2, 0.5, 0.8]), np.array([0.1, 0.2, 0.7])
    behavior = np.array([0.4, 0.4, 0.2])
    model = np.array([0.3, 0.5, 0.7])  # wrong on purpose: the weights must correct it
    rng, covered = np.random.default_rng(7), 0
    for _ in range(400):
        arm = rng.choice(3, size=300, p=behavior)
        rewards = (rng.random(300) < means[arm]).astype(float)
        weights = (policy / behavior)[arm]
        logged = Logged(rewards, weights, model[arm], np.full(300, policy @ model))
        lower, upper = METHODS[method](logged).interval
        covered += lower <= policy @ means <= upper
    # 95 % of 400 is 380; three binomial standard deviations are 13.
    assert 367 <= covered <= 393
