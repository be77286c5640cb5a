from collections.abc import Callable

import numpy as np
import pytest

from otel_lightning.learner.evaluate.gate import Verdict
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.gate.scores import judge_ranking

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def completion(task: int) -> Example:
    return Example(str(task), str(task), "heldout", None, (1,), (2,), None, 1.0, 1.0, 1.0, 1.0)


def judged(margins: list[Floats]) -> Verdict:
    """Judge by the scores of the better completions less those of the worse ones, by task."""
    pairs = [(completion(task), completion(task)) for task, of in enumerate(margins) for _ in of]
    better = np.concatenate([np.zeros(0), *margins])
    return judge_ranking(pairs, better, np.zeros(len(better)), seed=0)


def mostly_right(rng: np.random.Generator) -> Floats:
    """10 of 19 pairs right, but none in one of twenty tasks: half of all pairs."""
    right = 0 if rng.random() < 1 / 20 else 10
    return np.where(np.arange(19) < right, 1.0, -1.0)


Draw = Callable[[np.random.Generator], Floats]
NO_SKILL: dict[str, Draw] = {
    "pairs that share completions": lambda rng: np.subtract.outer(
        rng.normal(size=2), rng.normal(size=2)
    ).ravel(),
    "many pairs of few tasks": lambda rng: (
        rng.normal() + rng.normal(size=min(int(1 + rng.pareto(1.0)), 60)) / 2
    ),
    "tasks that are ranked wrong are rare": mostly_right,
}


@pytest.mark.parametrize("name", NO_SKILL)
def test_a_reward_model_without_skill_passes_in_one_of_twenty_logs_at_most(name: str) -> None:
    rng = np.random.default_rng(3)
    passed = sum(judged([NO_SKILL[name](rng) for _ in range(20)]).passed for _ in range(30))
    assert passed <= 6  # of 30 at level .05: 7 or more happen once in 1,500 times


def test_a_reward_model_with_skill_passes_and_each_task_counts_once() -> None:
    rng = np.random.default_rng(0)
    passed = sum(judged([rng.normal(1.0, 1.0, 2) for _ in range(30)]).passed for _ in range(10))
    assert passed >= 9
    # One task has nine of the eleven pairs, and all of them are ranked wrong.
    verdict = judged([-np.ones(9), np.ones(1), np.ones(1)])
    assert verdict.value == pytest.approx(2 / 3)


def test_ties_and_no_pairs_prove_nothing() -> None:
    verdict = judged([np.zeros(3)] * 40)
    assert (verdict.value, verdict.gain, verdict.passed) == (0.5, 0.0, False)
    assert verdict.lower < 0 < verdict.upper
    nothing = judged([])
    assert (nothing.tasks, nothing.passed) == (0, False)
