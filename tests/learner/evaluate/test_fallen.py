"""A gain that the newer rollouts lost, and gains that they did not."""

import numpy as np
import pytest

from otel_lightning.learner.evaluate.fallen import fallen
from otel_lightning.learner.evaluate.gains import Compared
from otel_lightning.learner.evaluate.off_policy import Logged


def compared(rng: np.random.Generator, start: float, end: float, since: float) -> Compared:
    """Two arms, evenly logged: the new policy serves the second one, the live one the first.

    The second one is better by `start`, and after this share of the log by `end`.
    """
    count = 1200
    taken = rng.integers(2, size=count)
    better = np.where(np.arange(count) < since * count, start, end)
    rewards = (rng.random(count) < 0.4 + taken * better).astype(float)
    new = Logged(rewards, 2.0 * taken, np.full(count, 0.4), np.full(count, 0.4))
    live = Logged(rewards, 2.0 * (1 - taken), np.full(count, 0.4), np.full(count, 0.4))
    return Compared(new, live, np.arange(count) // 3)


@pytest.mark.parametrize("since", [0.5, 0.75])
def test_gain_that_turned_into_a_loss_is_refused(since: float) -> None:
    rng = np.random.default_rng(0)
    told = [fallen(compared(rng, 0.3, -0.2, since), 0.0) for _ in range(20)]
    assert all(told)
    assert "the gain fell from +0." in told[0][0].text
    assert "leave out with --since" in told[0][0].text


@pytest.mark.parametrize(("start", "end"), [(0.3, 0.3), (0.05, 0.05), (0.05, 0.35), (0.45, 0.25)])
def test_gain_that_lasts_or_grew_is_hardly_ever_refused(start: float, end: float) -> None:
    """Without a fall, chance alone refuses 5 % at most: of 80, with three deviations, 9."""
    rng = np.random.default_rng(1)
    assert sum(bool(fallen(compared(rng, start, end, 0.5), 0.0)) for _ in range(80)) <= 9


def test_few_rollouts_are_not_compared() -> None:
    whole = compared(np.random.default_rng(2), 0.3, -0.2, 0.5)
    few = np.arange(20)
    part = Compared(whole.new.take(few), whole.live.take(few), whole.tasks[few])
    assert fallen(part, 0.0) == []


def test_loss_of_the_newest_tenth_is_refused() -> None:
    rng = np.random.default_rng(3)
    assert all(fallen(compared(rng, 0.4, -0.35, 0.9), 0.0) for _ in range(20))


def few(rng: np.random.Generator, end: float) -> Compared:
    """Sixty tasks of four rollouts, in the order of time; the gain turns in the newest six."""
    taken, tasks = rng.integers(2, size=240), np.arange(240) // 4
    better = np.where(tasks < 54, 0.4, end)
    rewards = (rng.random(240) < 0.5 + (taken - 0.5) * better).astype(float)
    half = np.full(240, 0.5)
    new = Logged(rewards, np.where(taken == 1, 1.5, 0.5), half, half)
    return Compared.with_behavior(new, tasks, sampled=True)


def test_loss_of_the_newest_six_of_sixty_tasks_is_refused() -> None:
    """The rates over many logs are measured by `tests/bench/weights_drift.py`."""
    rng = np.random.default_rng(4)
    assert sum(bool(fallen(few(rng, -0.4), 0.0)) for _ in range(80)) >= 68


def test_gain_of_sixty_tasks_that_lasts_is_hardly_ever_refused() -> None:
    rng = np.random.default_rng(5)
    assert sum(bool(fallen(few(rng, 0.4), 0.0)) for _ in range(80)) <= 9
