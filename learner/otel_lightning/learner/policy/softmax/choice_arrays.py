"""Logged choices among the arms of a flag as arrays, and their importance weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from otel_lightning.learner.arrays import Booleans, Floats, Integers
from otel_lightning.learner.evaluate.off_policy import Logged


@dataclass(frozen=True, slots=True)
class Choices:
    """Logged choices among `arms`, one per rollout, in time order; arrays of shape [N]."""

    arms: tuple[str, ...]
    taken: Integers
    propensities: Floats
    rewards: Floats
    tasks: Integers
    served: Booleans = field(default_factory=lambda: np.zeros(0, bool))
    """Which arms may be served, shape [K]; empty means all. The others are retired."""
    held: Floats = field(default_factory=lambda: np.zeros(0))
    """Share of the traffic of each arm that is too new to be learned, shape [K]; NaN for an arm
    that is learned. Empty means that all are learned."""

    def where(self, mask: Booleans) -> "Choices":
        """Select rollouts by a mask of shape [N]."""
        return replace(
            self,
            taken=self.taken[mask],
            propensities=self.propensities[mask],
            rewards=self.rewards[mask],
            tasks=self.tasks[mask],
        )

    def per_arm(self, values: Floats) -> Floats:
        """Sum values of shape [N] by arm, shape [K]."""
        return np.bincount(self.taken, values, minlength=len(self.arms)).astype(np.float64)

    @property
    def tried(self) -> Floats:
        """Number of rollouts that tried each arm, shape [K]."""
        return self.per_arm(np.ones_like(self.rewards))

    @property
    def may_serve(self) -> Booleans:
        """Which arms may be served, shape [K]."""
        return self.served if len(self.served) else np.ones(len(self.arms), bool)

    @property
    def learned(self) -> Booleans:
        """Which arms may be served and are not too new to be learned, shape [K]."""
        return self.may_serve & (np.isnan(self.held) if len(self.held) else True)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for learning a softmax policy."""

    estimator: str = "doubly_robust"
    exploration: float = 0.1
    kl_weight: float = 0.05
    entropy: float = 0.0
    """Weight of the entropy bonus, in standard deviations of the reward."""
    trust_region: float | None = None
    """Largest KL divergence from the logged shares, in nats; None sets no limit."""
    steps: int = 3000
    learning_rate: float = 1.0


def numbered(names: pl.Series, arms: Sequence[str]) -> Integers:
    """Replace the name of each arm by its position in `arms`."""
    return names.cast(pl.Enum(arms)).to_physical().to_numpy().astype(np.int64)


def reward_model(choices: Choices) -> Floats:
    """Return each arm's mean reward, shape [K]; an untried arm gets the mean of the worst arm."""
    tried = choices.per_arm(np.ones_like(choices.rewards))
    means = choices.per_arm(choices.rewards) / np.maximum(tried, 1)
    return np.where(tried > 0, means, means[tried > 0].min())


def logged_under(choices: Choices, probabilities: Floats, model: Floats) -> Logged:
    """Compute the importance weights of logged choices under a policy.

    Args:
        choices: The choices of the behavior policy.
        probabilities: Probability of each arm under the evaluated policy, shape [K].
        model: Modelled reward of each arm, fitted on other choices, shape [K].
    """
    return Logged(
        rewards=choices.rewards,
        weights=probabilities[choices.taken] / choices.propensities,
        modelled_taken=model[choices.taken],
        # Without features the policy's modelled value is the same for every rollout.
        modelled_policy=np.full(len(choices.taken), probabilities @ model),
    )
