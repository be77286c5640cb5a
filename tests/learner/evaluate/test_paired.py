import numpy as np
import pytest

from otel_lightning.learner import DataError
from otel_lightning.learner.evaluate.paired import Pair, Side, _bound, compare_sides
from otel_lightning.learner.evaluate.reward_range import Rewards


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
    comparison = compare_sides(("a", base), ("b", other))
    assert comparison.test == "McNemar's exact test"
    assert comparison.p_value == pytest.approx(p)
    assert comparison.gain == pytest.approx((better - worse) / (better + worse + 30))


def test_gain_on_all_of_three_tasks_is_no_proof() -> None:
    base, other = counted(3, 0, 0)
    comparison = compare_sides(("a", base), ("b", other))
    assert (comparison.gain, comparison.p_value, comparison.passed) == (1.0, 1 / 8, False)
    assert "p = 0.12 is not below 0.05" in comparison.refusals[0]


def test_bound_of_a_small_gain_is_below_it_and_refuses() -> None:
    base, other = counted(4, 3, 20)
    comparison = compare_sides(("a", base), ("b", other))
    assert comparison.gain > 0
    assert comparison.refusals[0].startswith("the gain is at least -")


def test_real_gain_passes_and_a_greater_least_gain_refuses_it() -> None:
    rng = np.random.default_rng(0)
    levels = rng.uniform(0.2, 0.6, (80, 1))
    base = (rng.random((80, 4)) < levels).astype(float)
    other = (rng.random((80, 4)) < levels + 0.25).astype(float)
    comparison = compare_sides(("a", rewards(base)), ("b", rewards(other)))
    assert comparison.passed
    assert comparison.lower < 0.25 < comparison.upper
    refused = compare_sides(("a", rewards(base)), ("b", rewards(other)), least_gain=0.3)
    assert not refused.passed
    assert "not above 0.3" in refused.refusals[0]


def test_equal_arms_pass_in_about_one_of_twenty_comparisons() -> None:
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(100):
        levels = rng.uniform(0, 1, (25, 1))
        both = (rng.random((2, 25, 2)) < levels).astype(float)
        passed += compare_sides(("a", rewards(both[0])), ("b", rewards(both[1]))).passed
    assert passed <= 13  # of 100 at level .05: 14 or more happen once in 2,000 times


@pytest.mark.parametrize(("tasks", "samples", "better"), [(10, 10, 0.1), (20, 5, 0.1), (8, 5, 0.2)])
def test_candidate_that_fails_all_samples_of_some_tasks_passes_as_seldom_as_alpha_says(
    tasks: int, samples: int, better: float
) -> None:
    # Worth as much as the base: it succeeds a little more often, but never in a few of the tasks.
    lost_share = better / (1 + better)
    rng, passed = np.random.default_rng(4), 0
    for _ in range(60):
        lost = rng.random((tasks, 1)) < lost_share
        drawn = rng.random((2, tasks, samples))
        base = drawn[0] < np.where(lost, 1.0, 1 - better)
        other = drawn[1] < np.where(lost, 0.0, 1.0)
        passed += compare_sides(("a", rewards(base)), ("b", rewards(other))).passed
    assert passed <= 6  # of 60 at level .05: 7 or more happen once in 33 times


def test_least_gain_that_most_tasks_exceed_is_not_passed_for_want_of_a_loss() -> None:
    base, other = counted(10, 0, 0)
    assert compare_sides(("a", base), ("b", other)).passed
    # A candidate that succeeds in 8 of 10 cases does so on ten tasks once in ten times.
    assert not compare_sides(("a", base), ("b", other), least_gain=0.8).passed


def test_rewards_that_only_one_side_has_are_left_out_and_many_refuse() -> None:
    base, other = counted(20, 0, 20)
    for task in range(30, 40):
        del other[(str(task), 0)]
    comparison = compare_sides(("a", base), ("b", other))
    assert (comparison.pairs, comparison.unpaired, comparison.passed) == (30, 10, False)
    assert "10 pairs have a reward on one side only" in comparison.refusals[0]
    assert compare_sides(("a", {}), ("b", other)).refusals == (
        "no task has a reward on both sides",
    )


def test_gain_must_hold_whatever_the_few_rewards_are_that_one_side_lacks() -> None:
    base, other = counted(8, 0, 192)
    assert compare_sides(("a", base), ("b", other)).passed
    # Failures of the other that left no reward, or successes: nobody knows.
    for task in range(100, 106):
        del other[(str(task), 0)]
    comparison = compare_sides(("a", base), ("b", other))
    assert (comparison.pairs, comparison.unpaired) == (194, 6)
    (reason,) = comparison.refusals
    assert reason.startswith("6 pairs have a reward on one side only: if b did badly in those")
    assert reason.endswith("say what they are worth with --failed-reward")
    # Of the base the missing ones count as the best, which is no loss beside a clear gain.
    base, other = counted(40, 0, 160)
    del base[("100", 0)], other[("101", 0)]
    assert compare_sides(("a", base), ("b", other)).passed


# A candidate that is worth as much as the base: it earns a little more, but for a rare loss.
RARE_LOSSES = {
    "of 10, once in 215 rollouts": (0.7, 0.75, -10.0, 20, 2),
    "of the whole range, once in 17 rollouts": (0.7, 0.75, -0.1, 40, 1),
    "of half, once in 6 rollouts": (0.5, 0.6, 0.0, 100, 1),
}


@pytest.mark.parametrize("name", RARE_LOSSES)
def test_rare_loss_is_refused_without_a_range_and_passes_as_seldom_as_alpha_says_with_one(
    name: str,
) -> None:
    usual, better, loss, tasks, samples = RARE_LOSSES[name]
    share = (better - usual) / (better - loss)
    rng, passed = np.random.default_rng(2), 0
    base = rewards(np.full((tasks, samples), usual))
    for _ in range(60):
        other = np.where(rng.random((tasks, samples)) < share, loss, better)
        passed += compare_sides(("a", base), ("b", rewards(other)), reward_range=(loss, 1.0)).passed
    assert passed <= 3  # of 60 at level .05
    unknown = compare_sides(("a", base), ("b", rewards(other)))
    assert unknown.reward_range is None
    assert unknown.refusals[0] == (
        "the rewards are not all 0 or 1, so a rare loss that was not logged yet could be of "
        "any size: give the least and the greatest possible reward with --reward-range LOW,HIGH"
    )


def test_gain_of_ordinary_size_passes_with_a_range() -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        levels = rng.uniform(0.2, 0.7, (50, 1))
        base = rewards(rng.beta(4 * levels, 4 * (1 - levels), (50, 3)))
        levels += 0.2
        other = rewards(rng.beta(4 * levels, 4 * (1 - levels), (50, 3)))
        comparison = compare_sides(("a", base), ("b", other), reward_range=(0.0, 1.0))
        assert comparison.passed, comparison.refusals
        assert comparison.reward_range == (0.0, 1.0)
        assert len(compare_sides(("a", base), ("b", other)).refusals) == 1
        (reason,) = compare_sides(("a", base), ("b", other), 0.2, reward_range=(0.0, 1.0)).refusals
        assert "with 0.95 confidence for rewards in [0, 1], not above 0.2" in reason


def test_order_of_the_tasks_decides_nothing() -> None:
    # Tasks whose ids follow the gain: bets in the order of the ids would be won before the losses.
    differences = np.repeat([0.3, -0.3], 30)
    assert _bound(differences, (0.0, 1.0), 0.0, 0.05, seed=0) < 0


def test_gain_that_decides_is_tested_by_itself_and_not_on_a_grid() -> None:
    differences = np.full(200, 0.05)
    bound = _bound(differences, (0.0, 1.0), 0.0334, 0.05, seed=0)
    assert 0.0334 < bound < 0.05
    assert _bound(differences, (0.0, 1.0), 0.0499, 0.05, seed=0) < 0.0499
    assert _bound(differences, (0.0, 1.0), 3.0, 0.05, seed=0) < 0.05


def test_rewards_of_0_and_1_need_no_range_and_a_wider_one_counts() -> None:
    base, other = counted(8, 0, 40)
    comparison = compare_sides(("a", base), ("b", other))
    assert comparison.passed
    assert comparison.reward_range == (0.0, 1.0)
    assert compare_sides(("a", base), ("b", other), reward_range=(0.0, 1.0)) == comparison
    (reason,) = compare_sides(("a", base), ("b", other), reward_range=(-10.0, 1.0)).refusals
    assert "for rewards in [-10, 1], not above 0" in reason


def test_reward_outside_of_the_range_is_named() -> None:
    base, other = counted(8, 0, 40)
    other["3", 0] = -0.5
    told = r"A reward of -0\.5 was logged, which is outside --reward-range 0,1"
    with pytest.raises(DataError, match=told):
        compare_sides(("a", base), ("b", other), reward_range=(0.0, 1.0))


def test_sum_of_rewards_that_rounding_put_above_the_range_is_inside() -> None:
    base, other = counted(8, 0, 40)
    other = {pair: (0.1 + 0.2) * value for pair, value in other.items()}
    assert max(other.values()) > 0.3
    low = {pair: 0.3 * value for pair, value in base.items()}
    assert compare_sides(("a", low), ("b", other), reward_range=(0.0, 0.3)).reward_range == (
        0.0,
        0.3,
    )
    told = r"A reward of 0\.3000001 was logged, which is outside --reward-range 0,0\.3\."
    with pytest.raises(DataError, match=told):
        compare_sides(("a", low), ("b", other | {("3", 0): 0.3000001}), reward_range=(0.0, 0.3))


def test_numbers_of_a_message_differ_if_the_values_do() -> None:
    base, other = counted(8, 0, 40)
    other["3", 0] = 1234567.5
    told = r"A reward of 1234567\.5 was logged, which is outside --reward-range 0,1234567\."
    with pytest.raises(DataError, match=told):
        compare_sides(("a", base), ("b", other), reward_range=(0.0, 1234567.0))
    assert str(Rewards((1e9, 1e9 + 1))) == "Rewards are in [1000000000, 1000000001] (as given)."


def test_reward_that_one_side_lacks_may_be_anything_in_the_range() -> None:
    base, other = rewards(np.full((100, 1), 0.2)), rewards(np.full((100, 1), 0.9))
    for task in range(5):
        del other[str(task), 0]
    assert compare_sides(("a", base), ("b", other), reward_range=(0.0, 1.0)).passed
    (reason,) = compare_sides(("a", base), ("b", other), reward_range=(-10.0, 1.0)).refusals
    assert reason.startswith("5 pairs have a reward on one side only: if b did badly in those")


def with_second_chances(name: str, success: float, crash: float, seed: int) -> Side:
    """60 tasks of two rollouts; one that crashes is attempted up to two more times."""
    rng = np.random.default_rng(seed)
    rewards: dict[Pair, float] = {}
    repeated = set()
    for pair in ((str(task), sample) for task in range(60) for sample in range(2)):
        for attempt in range(3):
            if rng.random() >= crash:
                rewards[pair] = float(rng.random() < success / (1 - crash))
                break
            if attempt < 2:
                repeated.add(pair)
    return Side(name, rewards, {pair for pair in repeated if pair in rewards})


def test_candidate_whose_bad_rollouts_crash_and_are_repeated_does_not_pass() -> None:
    unaware = passed = 0
    for seed in range(20):
        # Of all first attempts fewer succeed than those of the base.
        base = with_second_chances("base", 0.6, 0, seed)
        other = with_second_chances("other", 0.55, 0.3, seed + 100)
        looks_better = compare_sides(base, ("other", other.rewards)).passed
        found = compare_sides(base, other)
        unaware, passed = unaware + looks_better, passed + found.passed
        if looks_better and not found.passed:
            told = "more rollouts of other than of base were attempted again, after an attempt that"
            assert told in found.refusals[-1]
    assert unaware >= 10
    assert passed <= 1  # of 20 at level .05: two or more happen once in 4 times


def test_second_chances_that_both_sides_had_alike_are_no_reason_to_refuse() -> None:
    base, other = counted(20, 0, 40)
    again = {(str(task), 0) for task in range(12)}
    assert compare_sides(Side("a", base, again), Side("b", other, again)).passed
    assert compare_sides(Side("a", base, again), ("b", other)).passed
    assert not compare_sides(
        Side("a", base), Side("b", other, {(str(t), 0) for t in range(18)})
    ).passed


def test_rewards_of_one_side_only_and_second_chances_are_both_told() -> None:
    base, other = counted(8, 0, 192)
    for task in range(100, 103):
        del other[(str(task), 0)]
    again = {(str(task), 0) for task in range(4)}
    refusals = compare_sides(("a", base), Side("b", other, again)).refusals
    assert [reason.split(":")[0].removesuffix(" was lost or failed") for reason in refusals] == [
        "3 pairs have a reward on one side only",
        "4 more rollouts of b than of a were attempted again, after an attempt that",
    ]


def test_interval_of_pairs_of_0_and_1_is_that_of_agresti_and_min() -> None:
    """Half a pair is added in each cell: 10.5 better and 2.5 worse of 44."""
    comparison = compare_sides(*_named(counted(10, 2, 30)))
    gain = (10.5 - 2.5) / 44
    reach = 1.959964 * ((10.5 + 2.5 - 44 * gain**2) / 44**2) ** 0.5
    assert (comparison.lower, comparison.upper) == pytest.approx((gain - reach, gain + reach))


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_pairs_that_are_all_equal_leave_room_for_a_difference(level: float) -> None:
    same = rewards(np.full((5, 2), level))
    comparison = compare_sides(("a", same), ("b", same))
    assert comparison.gain == 0
    # Two pairs more, the size of a task: half of one is better, and half of one worse.
    assert comparison.upper == -comparison.lower == pytest.approx(1.959964 * 0.5**0.5 / 6)


def test_gain_that_is_the_same_in_all_tasks_has_no_interval() -> None:
    base = rewards(np.array([[0.1], [0.2], [0.3]]))
    other = rewards(np.array([[0.3], [0.4], [0.5]]))
    comparison = compare_sides(("a", base), ("b", other))
    assert "gain +0.2000, no interval, since it is the same in all tasks, p = 0.12" in str(
        comparison
    )
    one = compare_sides(("a", {("t", 0): 0.1}), ("b", {("t", 0): 0.3}))
    assert "no interval, since there is one task" in str(one)
    assert (
        str(compare_sides(("a", {}), ("b", base))) == "a and b: no task has a reward on both sides."
    )


@pytest.mark.parametrize("samples", [1, 3])
def test_interval_of_five_tasks_has_the_gain_in_it_as_often_as_it_says(samples: int) -> None:
    rng, inside = np.random.default_rng(5), np.zeros(2)
    for _ in range(200):
        levels = rng.uniform(0, 0.6, (5, 1))
        drawn = rng.random((2, 5, samples))
        successes = (drawn < np.array([levels, levels + 0.3])).astype(float)
        scores = np.array([levels, levels + 0.3]) + rng.normal(0, 0.2, (2, 5, samples))
        for i, sides in enumerate((successes, scores)):
            found = compare_sides(*_named((rewards(sides[0]), rewards(sides[1]))))
            inside[i] += found.lower <= 0.3 <= found.upper
    # Of 200: fewer than 178 happen once in 1,000 times at 95 %, and a bootstrap has fewer.
    assert inside.min() >= 178


def _named(
    sides: tuple[dict[Pair, float], dict[Pair, float]],
) -> tuple[tuple[str, dict[Pair, float]], tuple[str, dict[Pair, float]]]:
    return ("a", sides[0]), ("b", sides[1])
