"""Statistics of a flag's arms, as the command prints them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from otel_lightning.learner.evaluate.gains import per_task
from otel_lightning.learner.policy.softmax import Choices, Floats

NORMAL_97_5 = 1.96


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: number of rollouts that tried it, mean reward, shares of the traffic."""

    name: str
    tried: int
    mean: float
    low: float
    """Lower end of the mean's 95 % interval, over tasks."""
    high: float
    before: float
    """Share of the traffic that the live policy gives it, in [0, 1]."""
    after: float
    """Share of the traffic that the new policy gives it, in [0, 1]."""


def describe(choices: Choices, live: Mapping[str, float], new: Floats) -> tuple[Arm, ...]:
    """Describe each arm by its logged rewards and its shares of the traffic."""
    arms = []
    for i, name in enumerate(choices.arms):
        rows = choices.taken == i
        values = per_task(choices.rewards[rows], choices.tasks[rows]) if rows.any() else np.zeros(0)
        mean = float(values.mean()) if len(values) else float("nan")
        error = float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("nan")
        reach = NORMAL_97_5 * error
        arms.append(
            Arm(
                name,
                int(rows.sum()),
                mean,
                mean - reach,
                mean + reach,
                live.get(name, 0.0),
                float(new[i]),
            )
        )
    return tuple(arms)
