"""The input and the result of every estimator."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from otel_lightning.learner.arrays import Booleans, Floats, Integers
from otel_lightning.learner.evaluate.confidence import NORMAL_97_5

Rows = Integers | Booleans


class Fit(NamedTuple):
    """How a model of the reward depends on the rollouts that it was fitted on; arrays [N]."""

    weights: Mapping[str, Floats]
    """Weight of a rollout's residual in the value by each method that depends on the model."""
    fitted: Floats
    """Prediction for the logged action, by the model that was fitted on this rollout."""

    def take(self, rows: Rows) -> "Fit":
        """Select rows by a mask or by number."""
        weights = {method: values[rows] for method, values in self.weights.items()}
        return Fit(weights, self.fitted[rows])


@dataclass(frozen=True, slots=True)
class Logged:
    """N logged rollouts with importance weights of the evaluated policy; arrays of shape [N].

    The letters are those of the estimators' formulas. Predictions of 0 mean that there is no model
    of the reward.
    """

    rewards: Floats
    """r[i]."""
    weights: Floats
    """w[i]: the evaluated policy's probability of the logged action over its propensity."""
    modelled_taken: Floats
    """q(taken)[i]: the reward that the model predicts for the logged action."""
    modelled_policy: Floats
    """q(policy)[i]: the mean of the model's predictions under the evaluated policy."""
    expected: Floats | None = None
    """Number of rollouts that the propensities expect of each one's action, over the number that
    was logged. None: not known, so the logged numbers are taken as expected."""
    fit: "Fit | None" = None
    """How the model of the reward was fitted; None if it was not fitted on these rollouts."""
    unseen: float = 0.0
    """Share of the evaluated policy on actions that were never logged."""

    @classmethod
    def without_model(cls, rewards: Floats, weights: Floats) -> Self:
        """Build from rewards and weights alone, without a model of the reward."""
        return cls(rewards, weights, np.zeros_like(rewards), np.zeros_like(rewards))

    def take(self, rows: Rows) -> "Logged":
        """Select rows by a mask or by number; numbers may repeat, as in the bootstrap."""
        return replace(
            self,
            rewards=self.rewards[rows],
            weights=self.weights[rows],
            modelled_taken=self.modelled_taken[rows],
            modelled_policy=self.modelled_policy[rows],
            expected=None if self.expected is None else self.expected[rows],
            fit=None if self.fit is None else self.fit.take(rows),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A value as a ratio of sums over rollouts; arrays of shape [N]."""

    numerators: Floats
    denominators: Floats = field(repr=False)
    small_sample: bool = True
    """Whether the standard error divides by N - 1, for a mean, instead of N, for a ratio."""

    @property
    def value(self) -> float:
        """The estimated value; NaN where all weights are 0."""
        total = float(self.denominators.sum())
        return float(self.numerators.sum()) / total if total > 0 else float("nan")

    @property
    def standard_error(self) -> float:
        """The standard error by the delta method; NaN for a mean of one rollout."""
        total, count = float(self.denominators.sum()), len(self.numerators)
        if total <= 0 or (self.small_sample and count < 2):  # noqa: PLR2004 - N - 1
            return float("nan")
        # Delta method for a ratio sum(x) / sum(d): Var = sum of (x[i] - value * d[i])^2 / sum(d)^2.
        # With all d = 1 this is the variance of a mean.
        squares = float(((self.numerators - self.value * self.denominators) ** 2).sum())
        correction = count / (count - 1) if self.small_sample else 1.0
        return float((squares * correction) ** 0.5 / total)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval by the normal approximation."""
        reach = NORMAL_97_5 * self.standard_error
        return self.value - reach, self.value + reach


def mean_estimate(scores: Floats) -> Estimate:
    """Estimate a mean from independent scores, shape [N]."""
    return Estimate(scores, np.ones_like(scores))
