"""The interval of a run's mean reward, computed without numpy."""

import numpy as np
import pytest

from otel_lightning.learner.evaluate.intervals import bootstrap
from otel_lightning.learner.evaluate.off_policy import Estimate
from otel_lightning.learner.rollout_runner import Report
from otel_lightning.learner.rollout_runner.report import BLOCKS, interval


def report_of(rewards: list[list[float]]) -> Report:
    """A run with these rewards of each task."""
    flat = {
        f"{t}-{s}": (t, value) for t, some in enumerate(rewards) for s, value in enumerate(some)
    }
    return Report(
        "run",
        len(flat),
        0,
        {"ok": len(flat)},
        {name: value for name, (_, value) in flat.items()},
        tasks={name: str(task) for name, (task, _) in flat.items()},
    )


@pytest.mark.parametrize("tasks", [40, BLOCKS + 500])
def test_interval_is_that_of_the_bootstrap_of_estimates(tasks: int) -> None:
    rng = np.random.default_rng(0)
    # Rollouts of a task are alike, and tasks have different numbers of them.
    chances = rng.uniform(size=tasks)
    rewards = [list(rng.binomial(1, p, rng.integers(1, 6)).astype(float)) for p in chances]
    estimate = Estimate(
        np.array([sum(some) for some in rewards]), np.array([len(some) for some in rewards], float)
    )
    low, high = interval(report_of(rewards)) or (0.0, 0.0)
    expected = bootstrap(estimate)
    # Both draw 1,000 samples: an end varies by a tenth of the interval's half width.
    error = 0.15 * (expected[1] - expected[0])
    assert (low, high) == pytest.approx(expected, abs=error)
    assert low < estimate.value < high


@pytest.mark.parametrize("tasks", [1, 2, 30])
def test_rewards_that_are_all_1_or_all_0_leave_room_for_the_other(tasks: int) -> None:
    """Of `tasks` tasks none fails by chance in 2.5 % of cases if each succeeds with `least`."""
    least, most = interval(report_of([[1.0, 1.0]] * tasks)) or (0.0, 0.0)
    assert least**tasks == pytest.approx(0.025)
    assert most == 1.0
    assert interval(report_of([[0.0]] * tasks)) == (0.0, pytest.approx(1 - least))


def test_other_equal_rewards_have_no_interval() -> None:
    assert interval(report_of([[0.1, 0.1], [0.1]])) is None


def test_report_of_a_run_without_arms_compares_nothing() -> None:
    assert Report("run", 1, 0, {"ok": 1}, {"a": 1.0}).compare() == []
