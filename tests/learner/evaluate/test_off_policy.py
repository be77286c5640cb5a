from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from otel_lightning.learner.evaluate.estimates import ratio_limits
from otel_lightning.learner.evaluate.off_policy import METHODS, Logged, dr_os

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


Matrix = NDArray[np.float64]


class OpenBandit(NamedTuple):
    """The impressions of the uniformly random policy, and the evaluated policy, over 80 items."""

    item: NDArray[np.int64]
    position: NDArray[np.int64]
    click: Matrix
    user: Matrix
    """User features as zeros and ones, shape [N, 20]."""
    policy: Matrix
    """Probability of each item at each position, shape [80, 3]."""

    @classmethod
    def read(cls) -> "OpenBandit":
        impressions = table("random_all.csv.gz", np.int64)
        users = np.loadtxt(OPEN_BANDIT / "users.csv.gz", skiprows=1, dtype="U20")
        digits = users.view("U1").reshape(len(users), 20).astype(np.float64)
        item, position, click = impressions.T
        return cls(item, position, click.astype(np.float64), digits, table("bts_all.csv"))

    def errors(self, method: str, modelled: Callable[[int, "OpenBandit"], Matrix] | None) -> Matrix:
        """Return the relative errors of 30 bootstrap samples, as st-tech/zr-obp draws them."""
        truth, errors = 0.0042, []
        for seed in range(30):
            drawn = np.random.RandomState(seed).choice(len(self.click), size=len(self.click))
            part = self._replace(
                item=self.item[drawn],
                position=self.position[drawn],
                click=self.click[drawn],
                user=self.user[drawn],
            )
            shares = self.policy[:, part.position].T
            rows = np.arange(len(drawn))
            logged = Logged.without_model(part.click, shares[rows, part.item] * 80)
            if modelled is not None:
                model = modelled(seed, part)
                taken, expected = model[rows, part.item], (shares * model).sum(axis=1)
                logged = replace(logged, modelled_taken=taken, modelled_policy=expected)
            errors.append(abs(METHODS[method](logged).value - truth) / truth)
        return np.array(errors)


@cache
def table(name: str, dtype: type = np.float64) -> NDArray[Any]:
    """Read a file of numbers."""
    return np.loadtxt(OPEN_BANDIT / name, delimiter=",", skiprows=1, dtype=dtype)


def logistic_regressions() -> Callable[[int, OpenBandit], Matrix]:
    """Return the published reward model: logistic regressions, one a position, three folds."""
    items = table("items.csv")
    fitted = table("reward_models.csv.gz")[:, 3:].reshape(30, 3, 3, 25)
    shuffled = np.arange(10_000)
    np.random.RandomState(12345).shuffle(shuffled)  # as sklearn's KFold does
    folds = np.empty(10_000, np.int64)
    folds[shuffled] = np.repeat([0, 1, 2], [3334, 3333, 3333])

    def modelled(seed: int, part: OpenBandit) -> Matrix:
        weights = fitted[seed, folds, part.position]
        logits = (part.user * weights[:, :20]).sum(axis=1) + weights[:, 24]
        return 1 / (1 + np.exp(-(logits[:, None] + weights[:, 20:24] @ items.T)))

    return modelled


# Published in st-tech/zr-obp, examples/obd/README.md: behavior random, evaluation bts, campaign
# all, 30 bootstrap samples, logistic_regression, random_state 12345.
@pytest.mark.parametrize(
    ("method", "mean", "deviation"),
    [("ips", 0.311082, 0.311170), ("snips", 0.311795, 0.334736)],
)
def test_relative_error_on_open_bandit_data_is_the_published_one(
    method: str, mean: float, deviation: float
) -> None:
    errors = OpenBandit.read().errors(method, None)
    assert np.mean(errors) == pytest.approx(mean, abs=5e-7)
    assert np.std(errors, ddof=1) == pytest.approx(deviation, abs=5e-7)


@pytest.mark.parametrize(
    ("method", "mean", "deviation"),
    [
        ("direct_method", 0.156876, 0.109898),
        ("doubly_robust", 0.292464, 0.315485),
        # The original chooses both limits from 10, 50, 100 … by each sample. The published numbers
        # are those of 10, which is our limit of switch_dr; that of dr_os is 100.
        ("switch_dr", 0.258410, 0.160598),
        ("dr_os", 0.159520, 0.109660),
    ],
)
def test_relative_error_with_the_published_reward_model_is_the_published_one(
    monkeypatch: pytest.MonkeyPatch, method: str, mean: float, deviation: float
) -> None:
    monkeypatch.setattr(dr_os, "SHRINKAGE", 10.0)
    errors = OpenBandit.read().errors(method, logistic_regressions())
    # The regressions are fitted again, to a smaller tolerance than the published ones.
    assert np.mean(errors) == pytest.approx(mean, abs=2e-5)
    assert np.std(errors, ddof=1) == pytest.approx(deviation, abs=2e-5)


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


@pytest.mark.parametrize("method", ["ips", "clipped_ips", "doubly_robust", "switch_dr", "dr_os"])
def test_weights_as_used_give_the_value(method: str) -> None:
    heavy = replace(LOGGED, weights=np.array([20.0, 0.5, 1.0, 0.0]))
    if method.endswith("ips"):
        heavy = Logged.without_model(heavy.rewards, heavy.weights)
    used = METHODS[method].weights(heavy.weights)
    terms = heavy.modelled_policy + used * (heavy.rewards - heavy.modelled_taken)
    assert METHODS[method](heavy).value == pytest.approx(terms.mean())


@given(st.floats(0, 50), st.floats(-3, 3), st.floats(0, 4), st.floats(0, 1), st.floats(0, 1))
def test_limits_of_snips_hold_every_weighted_difference_and_are_reached(
    most: float, low: float, width: float, share: float, at: float
) -> None:
    high, value = low + width, low + at * width
    limits = ratio_limits(Logged.without_model(np.zeros(1), np.array([most])), (low, high), value)
    difference = share * most * (low + share * width - value)
    assert limits[0] - 1e-9 <= difference <= limits[1] + 1e-9
    ends = [weight * (reward - value) for weight in (0, most) for reward in (low, high)]
    assert limits == pytest.approx((min(ends), max(ends)))


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
