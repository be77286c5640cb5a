"""What every estimator takes and gives."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

NORMAL_97_5 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Logged:
    """What the behavior policy did, seen by the policy to be evaluated; arrays of shape [N].

    `modelled_taken` and `modelled_policy` come from a model of the reward: its prediction for
    the logged action, and its mean under the policy to be evaluated. Zeros mean no model.
    """

    rewards: NDArray[np.float64]
    weights: NDArray[np.float64]
    """Importance weights: the policy's probability of the logged action over its propensity."""
    modelled_taken: NDArray[np.float64]
    modelled_policy: NDArray[np.float64]

    @classmethod
    def without_model(cls, rewards: NDArray[np.float64], weights: NDArray[np.float64]) -> Self:
        """Say what was logged where nothing models the reward."""
        return cls(rewards, weights, np.zeros_like(rewards), np.zeros_like(rewards))

    def take(self, rows: NDArray[np.int64]) -> "Logged":
        """Pick rows, with repetition as the bootstrap does."""
        return Logged(
            self.rewards[rows],
            self.weights[rows],
            self.modelled_taken[rows],
            self.modelled_policy[rows],
        )


class Estimate(NamedTuple):
    """An estimated value and its standard error."""

    value: float
    standard_error: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval by the normal approximation."""
        reach = NORMAL_97_5 * self.standard_error
        return self.value - reach, self.value + reach


def mean_estimate(scores: NDArray[np.float64]) -> Estimate:
    """Estimate a mean from independent scores, shape [N]; one score has no standard error."""
    count = len(scores)
    error = float(scores.std(ddof=1)) / count**0.5 if count > 1 else float("nan")
    return Estimate(float(scores.mean()), error)
