"""The interval of a run's mean reward, computed without numpy."""

import numpy as np
import pytest

from otel_lightning.learner.rollout_runner import Report
from otel_lightning.learner.rollout_runner.report import interval


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


@pytest.mark.parametrize("tasks", [4, 40])
def test_interval_of_0_and_1_is_that_of_agresti_and_coull(tasks: int) -> None:
    """Three of four succeed. Two of each are added: (3 + 2) / (4 + 4) for four tasks."""
    low, high = interval(report_of([[1.0], [1.0], [1.0], [0.0]] * (tasks // 4))) or (0.0, 0.0)
    mean = (3 * tasks / 4 + 2) / (tasks + 4)
    reach = 1.959964 * (mean * (1 - mean) / (tasks + 4)) ** 0.5
    assert (low, high) == pytest.approx((mean - reach, mean + reach))


def test_interval_of_other_rewards_is_students() -> None:
    """Student's own data: the hours of sleep gained by ten patients (Biometrika, 1908, table)."""
    gained = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    expected = 2.33 - 2.2622 * 2.0022 / 10**0.5, 2.33 + 2.2622 * 2.0022 / 10**0.5
    assert interval(report_of([[hours] for hours in gained])) == pytest.approx(expected, rel=1e-3)
    # Three equal rollouts of a task are one observation.
    assert interval(report_of([[hours] * 3 for hours in gained])) == pytest.approx(
        expected, rel=1e-3
    )


@pytest.mark.parametrize("tasks", [5, 40])
def test_interval_has_the_mean_in_it_as_often_as_it_says(tasks: int) -> None:
    rng, inside = np.random.default_rng(0), np.zeros(2)
    for _ in range(200):
        # Rollouts of a task are alike, and tasks have different numbers of them.
        chances = rng.uniform(0.2, 1, size=tasks)
        sizes = rng.integers(1, 4, tasks)
        successes = [
            list(rng.binomial(1, p, n).astype(float)) for p, n in zip(chances, sizes, strict=True)
        ]
        scores = [list(rng.normal(p, 0.2, n)) for p, n in zip(chances, sizes, strict=True)]
        for i, rewards in enumerate((successes, scores)):
            low, high = interval(report_of(rewards)) or (0.0, 0.0)
            inside[i] += low <= 0.6 <= high
    # Of 200: fewer than 178 happen once in 1,000 times at 95 %.
    assert inside.min() >= 178


@pytest.mark.parametrize("tasks", [1, 2, 30])
def test_rewards_that_are_all_1_or_all_0_leave_room_for_the_other(tasks: int) -> None:
    """Of `tasks` tasks none fails by chance in 2.5 % of cases if each succeeds with `least`."""
    least, most = interval(report_of([[1.0, 1.0]] * tasks)) or (0.0, 0.0)
    assert least**tasks == pytest.approx(0.025)
    assert most == 1.0
    assert interval(report_of([[0.0]] * tasks)) == (0.0, pytest.approx(1 - least))


def test_other_equal_rewards_and_a_single_task_have_no_interval() -> None:
    assert interval(report_of([[0.1, 0.4]])) is None
    assert interval(report_of([[0.1, 0.1], [0.1]])) is None


def test_report_of_a_run_without_arms_compares_nothing() -> None:
    assert Report("run", 1, 0, {"ok": 1}, {"a": 1.0}).compare() == []
