import numpy as np
import pytest

from otel_lightning.learner.rollout_runner.paired import Pair, compare


def rewards(values: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> dict[Pair, float]:
    """Rewards of shape [tasks, samples]."""
    return {(str(t), s): float(v) for t, row in enumerate(values) for s, v in enumerate(row)}


def counted(better: int, worse: int, same: int) -> tuple[dict[Pair, float], dict[Pair, float]]:
    base = [0.0] * better + [1.0] * worse + [1.0] * same
    other = [1.0] * better + [0.0] * worse + [1.0] * same
    return rewards(np.array(base)[:, None]), rewards(np.array(other)[:, None])


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(10, 2, 79 / 4096), (9, 1, 11 / 1024), (5, 5, 638 / 1024), (0, 0, 1.0)],
)
def test_mcnemar_is_the_binomial_tail_of_the_discordant_pairs(
    better: int, worse: int, p: float
) -> None:
    base, other = counted(better, worse, 30)
    found = compare(("a", base), ("b", other))
    assert found.test == "McNemar's exact test"
    assert found.p_value == pytest.approx(p)
    assert found.gain == pytest.approx((better - worse) / (better + worse + 30))


def test_gain_on_all_of_three_tasks_is_no_proof() -> None:
    base, other = counted(3, 0, 0)
    found = compare(("a", base), ("b", other))
    assert (found.gain, found.p_value, found.passed) == (1.0, 1 / 8, False)
    assert "p = 0.12 is not below 0.05" in found.refusals[0]


def test_real_gain_passes_and_a_greater_least_gain_refuses_it() -> None:
    rng = np.random.default_rng(0)
    levels = rng.uniform(0.2, 0.6, (80, 1))
    base = (rng.random((80, 4)) < levels).astype(float)
    other = (rng.random((80, 4)) < levels + 0.25).astype(float)
    found = compare(("a", rewards(base)), ("b", rewards(other)))
    assert found.passed
    assert found.lower < 0.25 < found.upper
    refused = compare(("a", rewards(base)), ("b", rewards(other)), least_gain=0.3)
    assert not refused.passed
    assert "not above 0.3" in refused.refusals[0]


def test_equal_arms_pass_in_about_one_of_twenty_comparisons() -> None:
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(100):
        levels = rng.uniform(0, 1, (25, 1))
        both = (rng.random((2, 25, 2)) < levels).astype(float)
        passed += compare(("a", rewards(both[0])), ("b", rewards(both[1]))).passed
    assert passed <= 13  # of 100 at level .05: 14 or more happen once in 2,000 times


def test_rewards_that_only_one_side_has_are_left_out_and_many_refuse() -> None:
    base, other = counted(20, 0, 20)
    for task in range(30, 40):
        del other[(str(task), 0)]
    found = compare(("a", base), ("b", other))
    assert (found.pairs, found.unpaired, found.passed) == (30, 10, False)
    assert "10 pairs have a reward on one side only" in found.refusals[0]
    assert compare(("a", {}), ("b", other)).refusals == ("no task has a reward on both sides",)


def test_gain_must_hold_whatever_the_few_rewards_are_that_one_side_lacks() -> None:
    base, other = counted(8, 0, 192)
    assert compare(("a", base), ("b", other)).passed
    # Failures of the other that left no reward, or successes: nobody knows.
    for task in range(100, 106):
        del other[(str(task), 0)]
    found = compare(("a", base), ("b", other))
    assert (found.pairs, found.unpaired) == (194, 6)
    (reason,) = found.refusals
    assert reason.startswith("6 pairs have a reward on one side only: if b did badly in those")
    assert reason.endswith("say what they are worth with --failed-reward")
    # Of the base the missing ones count as the best, which is no loss beside a clear gain.
    base, other = counted(40, 0, 160)
    del base[("100", 0)], other[("101", 0)]
    assert compare(("a", base), ("b", other)).passed
