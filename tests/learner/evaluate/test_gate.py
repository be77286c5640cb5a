import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from otel_lightning.learner.evaluate.betting import FRACTIONS, PORTFOLIO, log_wealth
from otel_lightning.learner.evaluate.gains import (
    Compared,
    mean_of_others,
    per_task,
    robust_gains,
    within_tasks,
)
from otel_lightning.learner.evaluate.gate import (
    Requirements,
    Verdict,
    _tasks_needed,
    as_recorded,
    effective_sample_size,
    held_out_verdict,
    importance_weights,
    recorded_verdict,
)
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.evaluate.refusals import Cause, Refusal, recorded_refusals
from otel_lightning.learner.evaluate.reward_range import Rewards
from otel_lightning.learner.evaluate.to_pass import what_would_pass
from otel_lightning.learner.runs import to_json

SUCCESS = Requirements(Rewards((0.0, 1.0)))
to_pass = partial(what_would_pass, command="policy")


def logged_bandit(rng: np.random.Generator, means: list[float], count: int) -> Logged:
    """A policy that prefers arm 1, seen from uniform choices between two arms."""
    arm = rng.integers(2, size=count)
    rewards = (rng.random(count) < np.array(means)[arm]).astype(float)
    return Logged.without_model(rewards, np.array([0.2, 1.8])[arm])


def verdict_of(logged: Logged, tasks: np.ndarray, demands: Requirements = SUCCESS) -> Verdict:
    return held_out_verdict(Compared.with_behavior(logged, tasks), demands)


def test_clear_gain_passes() -> None:
    logged = logged_bandit(np.random.default_rng(0), [0.3, 0.7], 200)
    verdict = verdict_of(logged, np.arange(200))
    assert verdict.passed
    assert 0 < verdict.lower < verdict.gain < verdict.upper
    # The new policy is worth 0.1 * 0.3 + 0.9 * 0.7 = 0.66, the behavior policy 0.5.
    assert verdict.lower < 0.16 < verdict.upper


def test_gain_below_the_least_gain_is_refused() -> None:
    logged = logged_bandit(np.random.default_rng(0), [0.3, 0.7], 200)
    verdict = verdict_of(logged, np.arange(200), Requirements(Rewards((0.0, 1.0)), least_gain=0.15))
    (refusal,) = verdict.refusals
    assert "which is not above the least gain of 0.15" in refusal


def test_noise_is_refused_as_often_as_its_confidence_says() -> None:
    rng, passed = np.random.default_rng(1), 0
    for _ in range(200):
        passed += verdict_of(logged_bandit(rng, [0.5, 0.5], 120), np.arange(120)).passed
    assert passed <= 10


def test_lower_bound_is_where_a_bet_returns_twenty_times_its_stake() -> None:
    # Confidence 95 %, one-sided: 1 / 0.05 = 20.
    logged = logged_bandit(np.random.default_rng(0), [0.3, 0.7], 200)
    compared = Compared.with_behavior(logged, np.arange(200) // 4)
    scores = within_tasks(compared, SUCCESS.rewards.range)
    assert scores is not None
    verdict = held_out_verdict(compared, SUCCESS)
    assert log_wealth(scores, verdict.lower) == pytest.approx(math.log(20), abs=1e-3)


def test_the_p_value_is_the_smallest_level_at_which_the_gate_passes() -> None:
    for seed in range(20):
        logged = logged_bandit(np.random.default_rng(seed), [0.4, 0.6], 120)
        compared = Compared.with_behavior(logged, np.arange(120) // 2)
        found = held_out_verdict(compared, SUCCESS).p_value
        assert 0 < found <= 1
        for factor in (0.99, 1.01):
            wanted = replace(SUCCESS, alpha=min(factor * found, 0.999))
            refused = any(
                reason.cause is Cause.CHANCE
                for reason in held_out_verdict(compared, wanted).reasons
            )
            assert refused == (found > wanted.alpha)


def test_a_small_gain_in_every_task_is_seen_although_tasks_differ_much() -> None:
    # The new policy prefers arm 1, which is 0.1 better in each of 300 tasks of any difficulty.
    tasks, arm = np.repeat(np.arange(300), 2), np.tile([0, 1], 300)
    rewards = 0.9 * (tasks % 10) / 9 + 0.1 * arm
    verdict = verdict_of(Logged.without_model(rewards, np.array([0.2, 1.8])[arm]), tasks)
    assert verdict.gain == pytest.approx(0.1 * (0.9 - 0.5))
    assert verdict.passed


def test_worse_policy_is_refused() -> None:
    logged = logged_bandit(np.random.default_rng(2), [0.7, 0.3], 200)
    verdict = verdict_of(logged, np.arange(200))
    assert not verdict.passed
    assert "the gain may be chance" in verdict.refusals[0]


def test_policy_is_compared_with_the_live_one_and_not_with_the_logged_mean() -> None:
    # Arms 0, 1, 2 are worth .3, .9, .6; logged evenly, live serves arm 1, the new policy arm 2.
    rng = np.random.default_rng(3)
    arm = rng.integers(3, size=600)
    rewards = (rng.random(600) < np.array([0.3, 0.9, 0.6])[arm]).astype(float)
    new, live = (
        Logged.without_model(rewards, np.array(weights)[arm])
        for weights in ([0.0, 0.0, 3.0], [0.0, 3.0, 0.0])
    )
    tasks = np.arange(600)
    against_log = held_out_verdict(Compared.with_behavior(new, tasks), SUCCESS)
    against_live = held_out_verdict(Compared(new, live, tasks), SUCCESS)
    assert against_log.gain > against_live.gain + 0.2
    assert not against_live.passed
    assert against_live.behavior_value == pytest.approx(0.9, abs=0.1)
    assert against_live.upper < 0


def test_rollouts_of_one_task_count_as_one() -> None:
    logged = logged_bandit(np.random.default_rng(3), [0.1, 0.9], 90)
    verdict = verdict_of(logged, np.arange(90) % 9)
    assert any(
        reason.startswith("9 held-out tasks are too few to judge by (10 needed")
        for reason in verdict.refusals
    )


def test_ten_tasks_are_enough_to_judge_by() -> None:
    logged = logged_bandit(np.random.default_rng(3), [0.1, 0.9], 90)
    refusals = verdict_of(logged, np.arange(90) % 10).refusals
    assert not any("too few to judge by" in reason for reason in refusals)


def test_the_live_policy_is_modelled_if_the_new_one_is() -> None:
    logged = logged_bandit(np.random.default_rng(3), [0.1, 0.9], 20)
    modelled = Logged(logged.rewards, logged.weights, np.full(20, 0.5), np.full(20, 0.7))
    live = Compared.with_behavior(modelled, np.arange(20)).live
    assert (live.modelled_taken == 0.5).all()
    assert (live.modelled_policy == 0.5).all()  # it takes what was taken
    bare = Compared.with_behavior(
        Logged.without_model(logged.rewards, logged.weights), np.arange(20)
    )
    assert not bare.modelled


def test_a_gain_that_two_rollouts_a_task_underestimate_is_within_its_bounds() -> None:
    # The good action was taken in 30 % of the rollouts; the new policy always takes it.
    good = np.random.default_rng(6).random(600) < 0.3
    model = np.full(600, 0.3)
    new = Logged(good.astype(float), good / 0.3, model, model)
    tasks = np.arange(600) // 2
    verdict = held_out_verdict(Compared.with_behavior(new, tasks, sampled=True), SUCCESS)
    assert verdict.lower < 0.7 < verdict.upper
    assert verdict.lower < verdict.gain < verdict.upper


def test_copies_of_a_rollout_within_its_task_add_nothing() -> None:
    once = logged_bandit(np.random.default_rng(4), [0.4, 0.6], 50)
    rows = np.repeat(np.arange(50), 8)
    model = np.full(50, 0.5)
    once = Logged(once.rewards, once.weights, model, model)
    copies = once.take(rows)
    assert verdict_of(copies, rows).lower == pytest.approx(verdict_of(once, np.arange(50)).lower)
    assert verdict_of(copies, rows).lower < verdict_of(copies, np.arange(400)).lower


def test_weights_that_only_prefer_some_tasks_gain_nothing() -> None:
    # Each task has one outcome whatever is done; easy tasks drew more weight than hard ones.
    tasks = np.repeat(np.arange(60), 4)
    rewards = (tasks % 2).astype(float)
    logged = Logged.without_model(rewards, np.where(rewards == 1, 1.2, 0.8))
    verdict = verdict_of(logged, tasks)
    assert verdict.gain == 0
    assert not verdict.passed


def test_few_heavy_weights_are_refused() -> None:
    weights = np.full(100, 0.01)
    weights[0] = 99.0
    rewards = (np.arange(100) == 0).astype(float)
    verdict = verdict_of(Logged.without_model(rewards, weights), np.arange(100))
    assert any("effective sample of 1.0 rollouts" in reason for reason in verdict.refusals)


def test_effective_sample_below_ten_is_refused() -> None:
    weights = np.zeros(100)
    weights[:9] = 100 / 9
    verdict = verdict_of(Logged.without_model(np.ones(100), weights), np.arange(100))
    assert verdict.effective_sample_size == pytest.approx(9)
    assert any("effective sample of 9.0 rollouts (10 needed" in r for r in verdict.refusals)


def test_weights_that_were_clipped_away_are_refused() -> None:
    weights = np.where(np.arange(100) % 2 == 0, 1e6, 1e-6)
    new = Logged.without_model((np.arange(100) % 2 == 0).astype(float), weights)
    verdict = held_out_verdict(Compared.with_behavior(new, np.arange(100), clip=1.5), SUCCESS)
    assert any(
        "--clip cut away 100% of the importance weights" in reason for reason in verdict.refusals
    )


def test_a_clip_that_cuts_little_is_no_reason_to_refuse() -> None:
    # 5 % of the weights are 2, so the clip of 1.5 takes 2.4 % of the sum away.
    weights = np.where(np.arange(200) % 20 == 0, 2.0, 1.0)
    new = Logged.without_model(np.tile([0.0, 1.0], 100), weights / weights.mean())
    verdict = held_out_verdict(Compared.with_behavior(new, np.arange(200), clip=1.5), SUCCESS)
    assert not any("--clip" in reason for reason in verdict.refusals)


def test_clipping_never_turns_a_loss_into_a_gain() -> None:
    # The new policy moves to failures with weights far above the clip.
    rng = np.random.default_rng(5)
    rewards = (rng.random(400) < 0.5).astype(float)
    weights = np.where(rewards == 1, 0.9, 12.0)
    new = Logged.without_model(rewards, weights)
    verdict = held_out_verdict(Compared.with_behavior(new, np.arange(400), clip=10.0), SUCCESS)
    assert not verdict.passed
    assert verdict.gain < 0


def test_propensities_that_are_too_small_are_refused() -> None:
    logged = Logged.without_model(np.tile([0.0, 1.0], 100), np.full(200, 2.0))
    verdict = verdict_of(logged, np.arange(200))
    assert any("the propensities do not say how often" in reason for reason in verdict.refusals)


@pytest.mark.parametrize("count", [0, 1, 20])
def test_what_cannot_be_measured_is_refused(count: int) -> None:
    nothing = Logged.without_model(np.zeros(count), np.zeros(count))
    verdict = verdict_of(nothing, np.arange(count))
    assert not verdict.passed
    assert (verdict.rollouts, verdict.tasks) == (count, count)


def test_rare_large_losses_that_were_not_drawn_are_thinkable() -> None:
    # Arm 0 is worth .5 always; arm 1 gives .7 and -10 in 3 %: .379. It was drawn 5 % of the time.
    propensity, policy = np.array([0.95, 0.05]), np.array([0.05, 0.95])
    rng, passed = np.random.default_rng(6), 0
    for _ in range(200):
        arm = (rng.random(600) < 0.05).astype(int)
        loss = rng.random(600) < 0.03
        rewards = np.where(arm == 0, 0.5, np.where(loss, -10.0, 0.7))
        logged = Logged.without_model(rewards, (policy / propensity)[arm])
        passed += verdict_of(logged, np.arange(600), Requirements(Rewards((-10.0, 1.0)))).passed
    assert passed <= 10


@pytest.mark.slow
def test_daily_looks_at_growing_data_do_not_add_up_to_an_error() -> None:
    rng, ever = np.random.default_rng(7), 0
    for _ in range(60):
        logged = logged_bandit(rng, [0.5, 0.5], 600)
        looks = [logged.take(np.arange(30 * day)) for day in range(1, 21)]
        ever += any(verdict_of(look, np.arange(len(look.rewards))).passed for look in looks)
    assert ever <= 3


def test_verdict_says_how_many_tasks_would_be_needed() -> None:
    logged = logged_bandit(np.random.default_rng(0), [0.4, 0.6], 40)
    verdict = verdict_of(logged, np.arange(40))
    assert not verdict.passed
    assert verdict.tasks_needed is not None
    assert 40 < verdict.tasks_needed < 2000


def test_what_would_pass_depends_on_what_is_missing() -> None:
    logged = logged_bandit(np.random.default_rng(0), [0.4, 0.6], 40)
    verdict = replace(verdict_of(logged, np.arange(40)), tasks_needed=99.5, rollouts_needed={})
    gain = f"if the estimated gain is right ({verdict.gain:+.4f})."
    assert to_pass(verdict) == f"about 60 more held-out tasks like these, {gain}"
    of_arms = replace(verdict, rollouts_needed={"a": 10, "b": 2000})
    assert "more rollouts: 2,000 of 'b', 10 of 'a' (the smallest" in to_pass(of_arms)
    few = Refusal(Cause.FEW_TASKS, "9 tasks are too few")
    assert to_pass(replace(verdict, reasons=(*verdict.reasons, few))).endswith(gain)
    weights = Refusal(Cause.MEAN_WEIGHT, "the importance weights average 4.28")
    of_weights = replace(of_arms, reasons=(*verdict.reasons, weights))
    assert to_pass(of_weights).endswith("do not remove the other reasons of the refusal.")
    assert "tasks is enough" in to_pass(replace(verdict, reasons=(weights,)))
    unknown = replace(verdict, tasks_needed=None)
    assert to_pass(unknown).startswith("more held-out tasks like these (how many cannot be")
    assert "hold tasks out" in to_pass(replace(verdict, tasks=0))
    small = replace(verdict, gain=0.05, least_gain=0.1)
    assert "is not above the least gain of 0.1" in to_pass(small)
    live = (Refusal(Cause.NOTHING_NEW, "the learned policy is the live one"),)
    for least_gain in (0.0, -0.1):
        same = replace(verdict, gain=0.0, least_gain=least_gain, reasons=live)
        assert to_pass(same).endswith("this is the live policy.")
    rounding = replace(verdict, gain=1e-17, upper=0.2)
    assert to_pass(rounding).startswith("the held-out rollouts show no gain so far, but")
    none = replace(verdict, gain=-0.1, upper=0.2)
    assert "show no gain so far, but it may be up to +0.2000" in to_pass(none)
    assert to_pass(none).endswith("or try other arms.")
    assert what_would_pass(none, "weights").endswith("or try another training.")
    assert "rule out a larger one, so more rollouts like these would not help" in to_pass(
        replace(none, upper=0.0)
    )


def test_more_tasks_are_asked_for_while_too_few_decide() -> None:
    # One arm always fails and the other never does, but five tasks prove nothing by themselves.
    arm, tasks = np.tile([0, 1], 50), np.repeat(np.arange(5), 20)
    verdict = verdict_of(Logged.without_model(arm.astype(float), np.array([0.2, 1.8])[arm]), tasks)
    assert [reason.cause for reason in verdict.reasons if reason.cause is Cause.FEW_TASKS]
    needed = verdict.tasks_needed
    assert needed is not None
    assert needed >= 10
    assert f"about {math.ceil(needed) - 5} more held-out tasks" in to_pass(verdict)


def test_more_tasks_are_asked_for_while_the_effective_sample_is_small() -> None:
    # 4 of 400 rollouts carry nearly all of the weight: 10 effective ones need 2.5 times as many.
    weights = np.full(400, 1e-6)
    weights[::100] = 100.0
    rewards = (weights > 1).astype(float)
    verdict = verdict_of(Logged.without_model(rewards, weights), np.arange(400))
    assert verdict.effective_sample_size == pytest.approx(4, abs=0.01)
    assert verdict.tasks_needed is not None
    assert verdict.tasks_needed > 999


def test_a_verdict_is_read_as_it_was_recorded() -> None:
    logged = logged_bandit(np.random.default_rng(0), [0.4, 0.6], 40)
    verdict = verdict_of(logged, np.arange(40))
    recorded = json.loads(to_json(as_recorded(verdict)))
    assert recorded["refusals"] == list(verdict.refusals)
    assert recorded["causes"] == ["chance"]
    assert replace(recorded_verdict(recorded), reward_range=(0.0, 1.0)) == verdict


def test_older_verdicts_without_causes_are_read_by_their_words() -> None:
    logged = logged_bandit(np.random.default_rng(0), [0.4, 0.6], 40)
    recorded = json.loads(to_json(as_recorded(verdict_of(logged, np.arange(40)))))
    del recorded["causes"]
    assert "about" in to_pass(recorded_verdict(recorded))
    # As version 0.1.0 wrote them.
    recorded["refusals"] = [
        "the gain may be chance: with 95 % confidence (one-sided) it is at least -0.1",
        "9 held-out tasks are too few to judge by (10 needed: collect more, or raise --held-out)",
        "the importance weights average 0.61 and not 1: the propensities do not say how often",
    ]
    of_old = recorded_verdict(recorded)
    assert of_old.refusals == tuple(recorded["refusals"])
    assert to_pass(of_old).endswith("do not remove the other reasons of the refusal.")
    of_old = replace(of_old, reasons=of_old.reasons[:2])
    assert to_pass(of_old).endswith(f"is right ({of_old.gain:+.4f}).")


def test_causes_of_a_newer_version_are_read_as_unknown() -> None:
    refusals = recorded_refusals({"refusals": ["a", "b"], "causes": ["chance", "later"]})
    assert refusals == (Refusal(Cause.CHANCE, "a"), Refusal(Cause.UNKNOWN, "b"))


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("least_gain", [0.0, 0.1])
def test_the_tasks_needed_are_those_after_which_the_best_bet_has_won(
    kinds: int, least_gain: float
) -> None:
    # Each task gains .3, and could lose 1. Of the stake of 1 / `kinds`, each gambler has a share.
    scores = (np.full(40, 0.3), -1.0)
    demands = Requirements(Rewards((0.0, 1.0)), least_gain=least_gain)
    growth = np.log1p(FRACTIONS * (0.3 - least_gain) / (1 + least_gain))
    each = np.log(20 * kinds / PORTFOLIO) / growth
    assert _tasks_needed([scores] * kinds, demands) == pytest.approx(each.min())


def test_the_mean_of_the_others_leaves_a_rollout_out_and_needs_another_one() -> None:
    rewards, tasks = np.array([1.0, 3.0, 5.0, 7.0]), np.array([4, 4, 4, 9])
    assert mean_of_others(rewards, tasks, alone=0.5).tolist() == [4.0, 3.0, 2.0, 0.5]


def test_task_numbers_may_be_far_apart() -> None:
    tasks = np.array([10**12, 5, 10**12])
    assert per_task(np.array([1.0, 7.0, 3.0]), tasks).tolist() == [7.0, 2.0]


def test_mean_within_tasks_weighs_each_task_once() -> None:
    assert per_task(np.array([1.0, 3.0, 5.0]), np.array([7, 7, 9])).tolist() == [2.0, 5.0]


def test_effective_sample_size_of_equal_weights_is_their_number() -> None:
    assert effective_sample_size(np.full(7, 3.0)) == pytest.approx(7)


def test_weights_of_0_leave_no_effective_sample() -> None:
    assert effective_sample_size(np.zeros(3)) == 0.0


def test_importance_weights_are_finite_however_unlikely_a_rollout_was() -> None:
    assert np.isfinite(importance_weights(np.array([0.0]), np.array([-5000.0]))).all()


def test_doubly_robust_gain_is_the_one_worked_by_hand() -> None:
    rewards, modelled = np.array([1.0, 0.0]), np.array([0.6, 0.2])
    new = Logged(rewards, np.array([2.0, 0.5]), modelled, np.array([0.7, 0.7]))
    live = Logged(rewards, np.array([0.5, 1.5]), modelled, np.array([0.3, 0.3]))
    # Differences of the weights are 1.5 and -1, residuals .4 and -.2; both modelled gains are .4.
    assert robust_gains(Compared(new, live, np.arange(2))).tolist() == pytest.approx([1.0, 0.6])


def test_importance_weights_are_ratios_of_the_probabilities() -> None:
    weights = importance_weights(np.log([0.6, 0.1]), np.log([0.3, 0.2]))
    assert weights.tolist() == pytest.approx([2.0, 0.5])


def test_gain_within_tasks_passes_with_few_attempts_at_each() -> None:
    # 36 tasks, 4 attempts: successes became six times as likely as failures, .4 to .8.
    rng = np.random.default_rng(8)
    rewards = (rng.random(144) < 0.4).astype(float)
    logged = Logged.without_model(rewards, np.where(rewards == 1, 2.0, 1 / 3))
    verdict = verdict_of(logged, np.repeat(np.arange(36), 4))
    assert verdict.passed
    assert 0.1 < verdict.gain < 0.4


def test_gain_within_tasks_never_leaves_the_range_of_the_rewards() -> None:
    rng = np.random.default_rng(9)
    logged = Logged.without_model(rng.random(200), rng.lognormal(0, 3, 200))
    verdict = verdict_of(logged, np.repeat(np.arange(50), 4))
    assert -1 <= verdict.lower <= verdict.gain <= verdict.upper <= 1


def test_live_arm_that_was_never_logged_is_not_worth_nothing() -> None:
    # The live policy serves an arm that the log lacks; what was logged is worth .3.
    rng = np.random.default_rng(10)
    rewards = (rng.random(400) < 0.3).astype(float)
    new = Logged(rewards, np.ones(400), np.full(400, 0.3), np.full(400, 0.3))
    live = Logged(rewards, np.zeros(400), np.full(400, 0.3), np.full(400, 1.0))
    verdict = held_out_verdict(Compared(new, live, np.arange(400)), SUCCESS)
    assert not verdict.passed
    assert verdict.lower < -0.5
