"""Logged choices, summed up for each combination of input, arm and propensity.

Learning needs sums only. With features of 0 and 1, a million rollouts have a few hundred cells, so
a step of gradient ascent costs microseconds. Without features, all rollouts are in one cell.
"""

from dataclasses import dataclass

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.policy.softmax.choice_arrays import Choices

BASELINE_DECAY = 0.9


@dataclass(frozen=True, slots=True)
class Cells:
    """C distinct inputs, K arms, and G groups of rollouts with equal input, arm and propensity."""

    inputs: Floats
    """Standardised features of each input after a column of ones, shape [C, D + 1]."""
    shares: Floats
    """Share of the rollouts with each input, shape [C]."""
    arms: int
    place: Integers
    """Position of each group in a table of inputs and arms, input * K + arm, shape [G]."""
    propensities: Floats
    """Shape [G]."""
    counts: Floats
    """Number of rollouts as a share of all, shape [G]."""
    rewards: Floats
    """Sum of the rewards divided by the number of all rollouts, shape [G]."""
    advantages: Floats
    """Sum of the rewards above a moving baseline, divided like them, shape [G]; 0 without one."""

    def table(self, values: Floats) -> Floats:
        """Sum values of shape [G] by input and arm, shape [C, K]."""
        size = len(self.shares) * self.arms
        summed = np.bincount(self.place, values, minlength=size)
        return np.asarray(summed.reshape(-1, self.arms), dtype=np.float64)


def cells_of(choices: Choices, inputs: Floats, *, baseline: bool = False) -> Cells:
    """Sum up choices.

    Args:
        choices: The choices in time order, shape [N].
        inputs: Standardised features after a column of ones, shape [N, D + 1].
        baseline: Whether to compute advantages, which takes longer.
    """
    total, arms = len(choices.taken), len(choices.arms)
    distinct, number = _distinct(inputs)
    # Pairs and triples are packed into one integer, which np.unique sorts much faster than rows of
    # several columns. Division and remainder take them apart again.
    place = number * arms + choices.taken
    different, which = np.unique(choices.propensities, return_inverse=True)
    groups, group = np.unique(place * len(different) + which, return_inverse=True)

    def summed(values: Floats) -> Floats:
        return np.asarray(np.bincount(group, values) / total, dtype=np.float64)

    above = choices.rewards - _baselines(choices.rewards) if baseline else np.zeros(total)
    return Cells(
        inputs=distinct,
        shares=np.bincount(number) / total,
        arms=arms,
        place=groups // len(different),
        propensities=different[groups % len(different)],
        counts=summed(np.ones(total)),
        rewards=summed(choices.rewards),
        advantages=summed(above),
    )


def _distinct(inputs: Floats) -> tuple[Floats, Integers]:
    """Return the distinct rows, shape [C, D + 1], and the number of each row's one, shape [N].

    Numbering column by column is ten times faster than np.unique over rows.
    """
    number = np.zeros(len(inputs), np.int64)
    first = np.zeros(1, np.int64)
    for column in inputs.T[1:]:
        values, which = np.unique(column, return_inverse=True)
        # Invariant: rows with equal `number` agree in all columns so far, and `first` holds one row
        # of each number.
        _, first, number = np.unique(
            number * len(values) + which, return_index=True, return_inverse=True
        )
    return inputs[first], number


def _baselines(rewards: Floats) -> Floats:
    """Return the moving mean of the rewards before each one, in time order; it begins at 0."""
    baselines = np.zeros_like(rewards)
    baseline = 0.0
    # A Python loop, since each baseline depends on the one before. Only `reinforce` asks for it.
    for i, reward in enumerate(rewards.tolist()):
        baselines[i] = baseline
        baseline = BASELINE_DECAY * baseline + (1 - BASELINE_DECAY) * reward
    return baselines
