"""Statistics of a flag's arms, as the command prints them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.confidence import NORMAL_97_5
from otel_lightning.learner.evaluate.gains import per_task
from otel_lightning.learner.policy.softmax.choice_arrays import Choices

MIN_TASKS = 10
"""Smallest number of tasks for the normal approximation of their mean."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: number of rollouts that tried it, mean reward, shares of the traffic."""

    name: str
    tried: int
    mean: float
    low: float
    """Lower end of the mean's 95 % interval, over tasks; NaN if there are too few."""
    high: float
    before: float
    """Share of the traffic that the live policy gives it, in [0, 1]."""
    after: float
    """Share of the traffic that the new policy gives it, in [0, 1]."""


def describe(choices: Choices, live: Mapping[str, float], new: Floats) -> tuple[Arm, ...]:
    """Describe each arm by its logged rewards and its shares of the traffic."""
    arms = []
    ends = np.unique(choices.rewards)
    for i, name in enumerate(choices.arms):
        rows = choices.taken == i
        values = per_task(choices.rewards[rows], choices.tasks[rows]) if rows.any() else np.zeros(0)
        mean = float(values.mean()) if len(values) else float("nan")
        low, high = _interval(values, ends)
        share = live.get(name, 0.0)
        arms.append(Arm(name, int(rows.sum()), mean, low, high, share, float(new[i])))
    return tuple(arms)


def _interval(values: Floats, rewards: Floats) -> tuple[float, float]:
    """Bound the mean of an arm's tasks with 95 % confidence, within the logged rewards.

    The normal approximation of few tasks, or of equal ones, tells nothing, and is left out. Rewards
    with two values, such as 0 and 1, need no such rule: two more of each are added.

    Args:
        values: Mean reward of each task of the arm, shape [T].
        rewards: The distinct rewards of all arms, in order.

    Source:
        Agresti & Coull, Approximate is better than "exact" for interval estimation of binomial
        proportions (1998).
    """
    lowest, highest = float(rewards[0]), float(rewards[-1])
    # Agresti and Coull's "plus four": two imagined tasks at each end keep the interval honest even
    # if all values are equal.
    if len(rewards) == 2 and len(values):  # noqa: PLR2004 - two values
        values = np.concatenate([values, [lowest, lowest, highest, highest]])
    elif len(values) < MIN_TASKS or values.min() == values.max():
        return float("nan"), float("nan")
    mean, error = float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5
    return (
        max(lowest, mean - NORMAL_97_5 * error),
        min(highest, mean + NORMAL_97_5 * error),
    )
