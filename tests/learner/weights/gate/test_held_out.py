import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from otel_lightning.learner.evaluate.gate import Verdict
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.gate.held_out import (
    Likelihoods,
    divergence,
    judge_weights,
    mean_token_logprobs,
    usable,
)

HALF = math.log(0.5)


def example(rollout: str, reward: float, **columns: object) -> Example:
    row = {
        "rollout_id": rollout,
        "task": rollout,
        "split": "heldout",
        "state_hash": rollout,
        "prompt": (1,),
        "completion": (2,),
        "logprobs": (HALF,),
        "temperature": 1.0,
        "reward": reward,
        "outcome": reward,
        "advantage": reward,
    }
    return Example(**(row | columns))  # type: ignore[arg-type]


def judge(
    examples: list[Example],
    before: list[float],
    after: list[float],
    history: Sequence[Example] = (),
    **demands: Any,
) -> Verdict:
    likelihoods = Likelihoods(np.array(before), np.array(after))
    return judge_weights(
        examples, likelihoods, threshold=0.0, clip=10.0, history=history, **demands
    )


def coin(rollouts: int = 40, **columns: object) -> list[Example]:
    """Every second rollout succeeded; the behavior policy chose by a coin."""
    return [example(str(i), float(i % 2), **columns) for i in range(rollouts)]


def learned(examples: list[Example], good: float = 0.9) -> list[float]:
    return [math.log(good if e.reward else 1 - good) for e in examples]


def test_value_is_that_of_the_new_weights() -> None:
    examples = coin()
    verdict = judge(examples, [HALF] * 40, learned(examples))
    assert verdict.passed
    assert verdict.behavior_value == 0.5
    assert verdict.value == pytest.approx(0.9)


def test_weight_of_a_rollout_is_the_product_over_its_calls() -> None:
    examples = [
        example(
            str(i),
            float(i % 2) if step else 0.0,
            task=str(i),
            outcome=float(i % 2),
            advantage=float(i % 2),
        )
        for i in range(40)
        for step in range(2)
    ]
    after = [math.log(0.6 if e.advantage else 0.4) for e in examples]
    verdict = judge(examples, [HALF] * 80, after)
    assert verdict.rollouts == 40
    # 0.5 plus the mean of (w - 1) * (r - 0.5), with weights 1.44 and 0.64.
    assert verdict.value == pytest.approx(0.5 + (0.44 * 0.5 + 0.36 * 0.5) / 2)


@pytest.mark.parametrize("columns", [{"logprobs": None}, {"logprobs": (-9.0,), "temperature": 0.7}])
def test_model_before_stands_in_where_logprobs_are_missing_or_ambiguous(
    columns: dict[str, object],
) -> None:
    examples = coin(**columns)
    verdict = judge(examples, [HALF] * 40, learned(examples))
    assert verdict.value == pytest.approx(0.9)


def test_weights_that_forget_the_form_are_refused() -> None:
    # Success looks likelier relative to failure, yet both were given up for something unseen.
    examples = coin()
    after = [HALF - 2 if e.reward else HALF - 6 for e in examples]
    verdict = judge(examples, [HALF] * 40, after)
    assert (
        "good held-out completions became less likely: -0.6931 to -2.6931 a token"
        in verdict.refusals
    )
    assert any(r.startswith("the importance weights average 0.07") for r in verdict.refusals)


def easy_and_hard(split: str, rollouts: int, seed: int) -> list[Example]:
    """One rollout of each task: the first token of its prompt says how likely it succeeds."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(rollouts):
        kind = int(rng.integers(2))
        reward = float(rng.random() < (0.05, 0.95)[kind])
        found.append(example(f"{split}{i}", reward, split=split, prompt=(10 + kind, 20 + i % 7)))
    return found


def test_model_of_the_reward_removes_the_difference_between_tasks_from_the_estimate() -> None:
    # The weights prefer easy tasks to hard ones and change nothing within a task.
    examples = easy_and_hard("heldout", 200, 0)
    after = [HALF + (0.3 if e.prompt[0] == 11 else -0.4) for e in examples]
    alone = judge(examples, [HALF] * 200, after)
    robust = judge(examples, [HALF] * 200, after, easy_and_hard("train", 300, 1))
    assert robust.estimator == "doubly_robust"
    assert alone.gain > 0.1
    assert abs(robust.gain) < 0.05
    assert not robust.passed


def tried(tasks: int, attempts: int, seed: int) -> list[Example]:
    """Several rollouts of each task, whose difficulty differs."""
    rng = np.random.default_rng(seed)
    return [
        example(f"{task}-{i}", float(rng.random() < difficulty), task=str(task))
        for task, difficulty in enumerate(rng.random(tasks))
        for i in range(attempts)
    ]


def test_weights_that_learned_nothing_pass_at_most_as_often_as_the_gate_says() -> None:
    passed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        examples = tried(40, 4, seed)
        # They prefer some tasks, are sharper than before, and know nothing of the rewards.
        of_task = np.repeat(rng.normal(0.1, 0.3, 40), 4)
        after = HALF + of_task + rng.normal(0, 0.1, 160)
        passed += judge(examples, [HALF] * 160, after.tolist()).passed
    assert passed <= 60 * 0.05


def test_weights_without_relation_to_the_rewards_are_named() -> None:
    examples = tried(40, 4, 0)
    after = HALF + np.random.default_rng(3).normal(0, 0.1, 160)
    refusals = " ".join(judge(examples, [HALF] * 160, after.tolist()).refusals)
    assert "without relation to the rewards" in refusals or "do not agree on a gain" in refusals


def test_real_gain_passes_within_tasks_too() -> None:
    examples = tried(60, 4, 0)
    verdict = judge(examples, [HALF] * 240, [HALF + (0.4 if e.reward else -0.7) for e in examples])
    assert verdict.passed, verdict.refusals
    assert verdict.lower > 0


def with_rare_loss(seed: int) -> tuple[list[Example], list[float]]:
    """Of two completions one earns .6; the other usually .75, and -80 in two of a thousand."""
    rng = np.random.default_rng(seed)
    examples, after = [], []
    for i in range(500):
        other = rng.random() < 0.5
        reward = (-80.0 if rng.random() < 0.002 else 0.75) if other else 0.6
        good = {"advantage": reward - 0.65, "prompt": (i,), "completion": (int(other),)}
        examples.append(example(f"{i:03}", reward, **good))
        after.append(math.log(0.9 if other else 0.1))
    return examples, after


def test_rare_loss_that_was_not_logged_passes_no_gate() -> None:
    passed = refused = 0
    for seed in range(10):
        examples, after = with_rare_loss(seed)
        verdict = judge(examples, [HALF] * 500, after)
        refused += any(
            "give the least and the greatest possible reward" in r for r in verdict.refusals
        )
        passed += verdict.passed
        passed += judge(examples, [HALF] * 500, after, reward_range=(-80.0, 1.0)).passed
    # The new weights are worse by .4 * (.591 - .6): they look better where no loss was logged.
    assert (passed, refused) == (0, 10)


def test_graded_rewards_pass_with_their_range() -> None:
    examples = [example(str(i), 0.9 if i % 2 else 0.1, advantage=i % 2 - 0.5) for i in range(200)]
    after = [math.log(0.8 if i % 2 else 0.2) for i in range(200)]
    assert judge(examples, [HALF] * 200, after, reward_range=(0.0, 1.0)).passed
    (refusal,) = judge(examples, [HALF] * 200, after).refusals
    assert refusal.startswith("the rewards are not all 0 or 1")


def changed(seed: int, since: int) -> tuple[list[Example], list[float]]:
    """Of two completions the second one succeeds more often; from a task on, the first one."""
    rng = np.random.default_rng(seed)
    examples, after = [], []
    for task in range(120):
        for attempt in range(4):
            other = int(rng.integers(2))
            better = other if task < since else 1 - other
            reward = float(rng.random() < (0.3, 0.7)[better])
            at = {"task": str(task), "prompt": (task,), "completion": (other,), "began": task}
            examples.append(example(f"{task:03}-{attempt}", reward, **at))
            after.append(math.log((0.25, 0.75)[other]))
    return examples, after


def test_gain_that_the_newest_rollouts_lost_is_refused() -> None:
    told = []
    for seed in range(10):
        examples, after = changed(seed, since=100)
        told.append(" ".join(judge(examples, [HALF] * 480, after).refusals))
    fallen = [one for one in told if "the gain fell from +0." in one]
    assert len(fallen) >= 9
    assert "lightning-learn evaluate --model" in fallen[0]


def test_gain_that_lasts_is_not_refused() -> None:
    refusals = ""
    for seed in range(10):
        examples, after = changed(seed, since=120)
        refusals += " ".join(judge(examples, [HALF] * 480, after).refusals)
    assert "fell" not in refusals


def test_thin_overlap_is_refused() -> None:
    examples = tried(100, 4, 0)
    after = [HALF - 5.0] * 400
    for place in range(0, 400, 40):
        after[place] = HALF + 2.0
    refusals = judge(examples, [HALF] * 400, after).refusals
    assert any(
        one.startswith("the overlap is thin: the 400 rollouts tell as much") for one in refusals
    )


def test_nothing_held_out_is_refused() -> None:
    verdict = judge([], [], [])
    assert not verdict.passed
    assert "0 held-out tasks are too few" in verdict.refusals[0]


def test_divergence_is_that_of_the_new_weights_from_the_old_ones_per_token() -> None:
    # Two tokens each, so half of KL(p || q) of a coin and a bent coin, by its definition.
    examples = coin(completion=(2, 3))
    after = learned(examples, 0.8)
    found = divergence(examples, Likelihoods(np.full(40, HALF), np.array(after)))
    expected = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)
    assert found == pytest.approx(expected / 2)
    assert math.isnan(divergence([], Likelihoods(np.empty(0), np.empty(0))))


def test_mean_token_logprob_counts_tokens_of_good_completions_only() -> None:
    examples = [
        example("a", 1.0, completion=(2, 3, 4)),
        example("b", 1.0),
        example("c", 0.0),
    ]
    likelihoods = Likelihoods(np.array([-3.0, -1.0, -50.0]), np.array([-1.0, -1.0, -50.0]))
    assert mean_token_logprobs(examples, likelihoods, 0.0) == (-1.0, -0.5)


def test_rollouts_that_are_greedy_or_not_whole_cannot_be_weighed() -> None:
    examples = [example("a", 1.0), example("b", 1.0, temperature=0.0), example("c", 1.0)]
    assert [e.rollout_id for e in usable(examples, ["c"])] == ["a"]
