from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from otel_lightning.learner.evaluate import betting
from otel_lightning.learner.evaluate.betting import Scores
from otel_lightning.learner.evaluate.star_bets import MAX_BET, log_wealth, lower_bound, rejected

Floats = NDArray[np.float64]

ALPHA = 0.05
ZERO = np.array([0.0])


def is_above_0(values: Floats) -> bool:
    return bool(rejected(Scores(values, lowest=-1.0), ZERO, ALPHA)[0])


@pytest.mark.parametrize("loss", [1.0, 0.3])
@pytest.mark.parametrize("gain", [0.2, 0.5, 1.0])
def test_a_mean_of_0_earns_nothing_and_passes_with_probability_alpha_at_most(
    gain: float, loss: float
) -> None:
    # Two possible values, and all sequences of ten: expectation and probability are exact.
    share = gain / (gain + loss)  # of losses, so that the mean is 0
    wealth, passed = 0.0, 0.0
    for lost in product((False, True), repeat=10):
        probability = share ** sum(lost) * (1 - share) ** (10 - sum(lost))
        values = np.where(lost, -loss, gain)
        wealth += probability * np.exp(log_wealth(Scores(values, lowest=-1.0), ZERO, ALPHA)[0])
        passed += probability * is_above_0(values)
    assert wealth == pytest.approx(1.0)
    assert passed <= ALPHA


Draw = Callable[[np.random.Generator, int], Floats]
# Half of the fixed tasks gain and the others lose, so the values are no independent draws.
NO_GAIN: dict[str, Draw] = {
    "a rare large loss": lambda rng, n: np.where(rng.random(n) < 0.05 / 1.05, -1.0, 0.05),
    "skewed to the left": lambda rng, n: 0.25 - rng.beta(0.3, 0.9, n),
    "fixed tasks in a random order": lambda rng, n: (
        rng.permutation(np.where(np.arange(n) % 2, 0.3, -0.3)) + rng.uniform(-0.7, 0.7, n)
    ),
}


@pytest.mark.parametrize("name", NO_GAIN)
@pytest.mark.parametrize("tasks", [20, 60])
def test_values_with_a_mean_of_0_pass_as_seldom_as_alpha_says(name: str, tasks: int) -> None:
    rng = np.random.default_rng(0)
    passed = sum(is_above_0(NO_GAIN[name](rng, tasks)) for _ in range(300))
    assert passed <= 27  # of 300 at level .05: 28 or more happen once in 400 times


def test_no_gain_and_too_few_tasks_prove_nothing() -> None:
    assert not is_above_0(np.zeros(100))
    assert not is_above_0(np.zeros(0))
    assert not is_above_0(np.ones(4))
    assert is_above_0(np.ones(5))  # 1.999 ** 5 > 20


def test_equal_gains_pass_with_as_many_tasks_as_the_largest_bet_needs() -> None:
    # No test that knows of rare losses can pass with fewer: 1.1 ** -31 is above .05.
    needed = int(np.ceil(np.log(1 / ALPHA) / np.log1p(MAX_BET * 0.1)))
    assert needed == 32
    assert is_above_0(np.full(needed + 1, 0.1))
    assert not is_above_0(np.full(needed - 1, 0.1))


def test_noisy_gain_passes_more_often_than_by_bets_for_any_number_of_tasks() -> None:
    rng, passed = np.random.default_rng(1), np.zeros(2)
    for _ in range(100):
        values = rng.choice([1.0, 0.0, -1.0], 100, p=[0.28, 0.58, 0.14])
        by_any = betting.lower_bound([Scores(values, lowest=-1.0)], ALPHA) > 0
        passed += is_above_0(values), by_any
    assert passed[0] > passed[1] + 25


def test_the_bound_is_below_the_mean_and_rises_with_more_tasks() -> None:
    values = np.tile([0.1, 0.4, 0.1, 0.6], 200)
    few, many = (lower_bound(Scores(v, -1.0), 1.0, ALPHA) for v in (values[:40], values))
    assert 0 < few < many < values.mean()
    assert lower_bound(Scores(values - 1.1, -1.0), 1.0, ALPHA) < -0.8
    assert lower_bound(Scores(np.full(3, -1.0), -1.0), 1.0, ALPHA) == -1.0
