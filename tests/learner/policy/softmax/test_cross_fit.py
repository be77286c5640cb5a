"""The model of the reward that is fitted by halves, and how precise values are that use it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from otel_lightning.learner.evaluate import intervals, off_policy
from otel_lightning.learner.evaluate.estimates import estimate_value
from otel_lightning.learner.policy.candidate import NO_FEATURES
from otel_lightning.learner.policy.softmax.choice_arrays import Choices
from otel_lightning.learner.policy.softmax.cross_fit import cross_fitted
from otel_lightning.learner.policy.softmax.features import Features

MEANS = np.array([0.2, 0.5, 0.8])
BEHAVIOR, POLICY = np.array([0.85, 0.1, 0.05]), np.array([0.1, 0.2, 0.7])
TASKS = 300
Log = tuple[Choices, NDArray[np.float64], Features]


def log(seed: int, *, in_context: bool) -> Log:
    """Log rollouts of tasks that differ in size and ease, with weights of up to 14."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(TASKS), rng.integers(1, 5, TASKS))
    count, ease = len(tasks), rng.normal(0, 0.1, TASKS)[tasks]
    inputs = rng.normal(size=(count, 2)) + ease[:, None]
    taken = rng.choice(3, size=count, p=BEHAVIOR)
    slopes = np.array([[0.1, 0], [0, 0.1], [-0.1, 0.05]]) * in_context
    mean = MEANS[taken] + (inputs * slopes[taken]).sum(axis=1) + ease
    rewards = (rng.random(count) < mean).astype(float)
    choices = Choices(tuple("abc"), taken, BEHAVIOR[taken], rewards, tasks)
    if not in_context:
        return choices, np.broadcast_to(POLICY, (count, 3)), NO_FEATURES
    odds = np.exp(inputs @ np.array([[0.0, 0.5, 1], [0, 1, 0.5]]))
    return choices, odds / odds.sum(axis=1, keepdims=True), Features(("x", "y"), inputs)


def resampled(one: Log, rng: np.random.Generator) -> Log:
    """Draw tasks with replacement; a task drawn twice is two tasks of the same half."""
    choices, probabilities, features = one
    drawn = rng.integers(TASKS, size=TASKS)
    places = [np.flatnonzero(choices.tasks == task) for task in drawn]
    rows = np.concatenate(places)
    number = np.arange(TASKS) * 2 + drawn % 2
    tasks = np.repeat(number, [len(place) for place in places])
    again = Choices(
        choices.arms, choices.taken[rows], choices.propensities[rows], choices.rewards[rows], tasks
    )
    values = Features(features.names, features.values[rows]) if features.names else features
    return again, probabilities[rows], values


def value(method: str, one: Log) -> float:
    estimate = off_policy.METHODS[method](cross_fitted(*one))
    return intervals.by_task(estimate, one[0].tasks).value


@pytest.mark.slow
@pytest.mark.parametrize("in_context", [False, True])
def test_standard_error_of_a_modelled_value_is_that_of_fitting_again(
    in_context: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The second implementation draws tasks again and fits the model again on each draw."""
    one = log(1, in_context=in_context)
    rng = np.random.default_rng(2)
    again = [resampled(one, rng) for _ in range(200)]
    seen = cross_fitted(*one)
    for method in ("direct_method", "switch_dr", "dr_os"):
        deviation = np.std([value(method, draw) for draw in again])
        error = estimate_value(method, seen, one[0].tasks, (0.0, 1.0)).standard_error
        # A standard deviation of 200 draws is itself uncertain by 5 %.
        assert error == pytest.approx(deviation, rel=0.25), method
        plain = off_policy.METHODS[method](seen)
        alone = intervals.by_task(plain, one[0].tasks).standard_error
        assert alone < (0.5 * error if method == "direct_method" else error)


def test_standard_error_does_not_change_the_value() -> None:
    for in_context in (False, True):
        one = log(3, in_context=in_context)
        seen = cross_fitted(*one)
        for method in off_policy.METHODS:
            told = estimate_value(method, seen, one[0].tasks, (0.0, 1.0)).value
            assert told == pytest.approx(value(method, one), abs=1e-12)
