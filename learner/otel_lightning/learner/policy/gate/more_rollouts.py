"""Number of further rollouts of each arm with which the gate would pass."""

import math

import numpy as np

from otel_lightning.learner.arrays import Booleans, Floats, Integers
from otel_lightning.learner.evaluate.gains import Compared, robust_gains
from otel_lightning.learner.evaluate.gate import Verdict
from otel_lightning.learner.policy.softmax.choice_arrays import Choices

HALVINGS = 100


def more_rollouts(
    held_out: Compared, choices: Choices, judged_by: Booleans, verdict: Verdict
) -> dict[str, int]:
    """Divide the rollouts that the gate needs between the arms, so that the total is smallest.

    The variance of the gain is a sum over arms, V = sum of V[a]. With m[a] more rollouts, an arm
    that has n[a] contributes V[a] * n[a] / (n[a] + m[a]). The gate needs T' tasks instead of T, so
    V has to fall to V * T / T'.

    Args:
        held_out: The held-out rollouts.
        choices: All logged rollouts.
        judged_by: Which of them are held out.
        verdict: The verdict, with the number of tasks needed.

    Returns:
        Number of further rollouts by arm, over all splits; empty if the gate passed, or if the
        rollouts show no gain to confirm.
    """
    needed = verdict.tasks_needed
    if verdict.passed or needed is None or not verdict.tasks or not math.isfinite(needed):
        return {}
    # Written as "not above", so that a gain of NaN returns here too.
    if not verdict.gain > verdict.least_gain or needed <= verdict.tasks:
        return {}
    variance = _variance_of_arms(held_out, choices.taken[judged_by], len(choices.arms))
    counts = choices.tried
    kept = variance > 0
    if not kept.any():
        return {}
    wanted = float(variance.sum()) * verdict.tasks / needed
    total = _smallest_counts(variance[kept], counts[kept], wanted)
    more = np.zeros(len(counts))
    more[kept] = total - counts[kept]
    return {arm: math.ceil(more[i]) for i, arm in enumerate(choices.arms) if math.ceil(more[i]) > 0}


def _variance_of_arms(held_out: Compared, taken: Integers, arms: int) -> Floats:
    """Attribute the variance of the gain to the arms that were taken, shape [K]."""
    scores = robust_gains(held_out)
    squares = (scores - scores.mean()) ** 2
    return np.asarray(np.bincount(taken, squares, minlength=arms), dtype=np.float64)


def _smallest_counts(variance: Floats, counts: Floats, wanted: float) -> Floats:
    """Find the smallest sum of counts c >= n with sum of V * n / c <= wanted.

    At the optimum, V * n / c^2 is equal for all arms that get more rollouts (Lagrange). Its root
    is found by bisection.
    """
    root = np.sqrt(variance * counts)
    # c = max(n, root * x): the sum of V * n / c falls as x rises. At `high` even the arm with the
    # smallest root has enough, so the solution is in between.
    low, high = 0.0, float((variance * counts).sum() / wanted / root.min()) + 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = (variance * counts / np.maximum(counts, root * middle)).sum() <= wanted
        low, high = (low, middle) if enough else (middle, high)
    return np.asarray(np.maximum(counts, root * high), dtype=np.float64)
