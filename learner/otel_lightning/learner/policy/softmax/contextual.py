"""A linear softmax policy over arms and features of the input; pure numpy, deterministic.

Without features it is a softmax policy over the arms alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.policy.softmax.ascent import Shares, ascend, behavior_of, shares_of
from otel_lightning.learner.policy.softmax.cells import cells_of
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings
from otel_lightning.learner.policy.softmax.objectives import GRADIENTS

RIDGE = 1.0
"""Strength of the reward model's ridge penalty: it weighs as much as one rollout at the mean."""


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Means and deviations that standardise features; an unknown value becomes the mean."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, values: Floats) -> "Standardisation":
        """Compute the mean and deviation of each column; a constant column gets deviation 1."""
        if not values.shape[1]:
            return cls(np.zeros(0), np.ones(0))
        deviation = np.nanstd(values, axis=0)
        return cls(np.nanmean(values, axis=0), np.where(deviation > 0, deviation, 1.0))

    def apply(self, values: Floats) -> Floats:
        """Standardise values of shape [N, D] and put a column of ones before them."""
        # After standardising, 0 is the mean, so an unknown value becomes the mean of its feature.
        standard = np.nan_to_num((values - self.mean) / self.deviation, nan=0.0)
        return np.concatenate([np.ones((len(values), 1)), standard], axis=1)


@dataclass(frozen=True, slots=True)
class Policy:
    """pi(a | x) = floor[a] + rest * softmax(W [1, x])[a], with the softmax over learned arms."""

    arms: tuple[str, ...]
    features: tuple[str, ...]
    standard: Standardisation
    weights: Floats
    """Shape [K, D + 1]."""
    shares: Shares

    def probabilities(self, values: Floats) -> Floats:
        """Compute the probability of each arm for features of shape [N, D]: shape [N, K]."""
        return self.shares.of(self.standard.apply(values) @ self.weights.T)

    def as_parameters(self) -> dict[str, Any]:
        """Write the policy as JSON values."""
        return {
            "arms": list(self.arms),
            "features": list(self.features),
            "mean": self.standard.mean.tolist(),
            "deviation": self.standard.deviation.tolist(),
            "weights": self.weights.tolist(),
            "floor": self.shares.floor.tolist(),
            "learned": self.shares.learned.tolist(),
        }


def from_parameters(parameters: dict[str, Any]) -> Policy:
    """Rebuild a policy from the JSON values that `Policy.as_parameters` wrote."""
    if "floor" in parameters:
        floor, learned = np.array(parameters["floor"]), np.array(parameters["learned"], dtype=bool)
    else:  # written before new arms were held
        learned = np.array(parameters["served"], dtype=bool)
        floor = float(parameters["exploration"]) * learned / learned.sum()
    return Policy(
        tuple(parameters["arms"]),
        tuple(parameters["features"]),
        Standardisation(np.array(parameters["mean"]), np.array(parameters["deviation"])),
        np.array(parameters["weights"]),
        Shares(floor, learned),
    )


def reward_model(choices: Choices, inputs: Floats) -> Floats:
    """Fit the reward of each arm by a ridge regression on the inputs, shape [K, D + 1].

    An arm that was never tried gets the mean reward of the worst arm.
    """
    fitted, means = np.zeros((len(choices.arms), inputs.shape[1])), []
    for arm in range(len(choices.arms)):
        of_arm = choices.taken == arm
        if not of_arm.any():
            fitted[arm, 0] = np.nan
            continue
        rows, rewards = inputs[of_arm], choices.rewards[of_arm]
        means.append(float(rewards.mean()))
        fitted[arm] = np.linalg.solve(gram(rows), rows.T @ rewards)
    fitted[np.isnan(fitted[:, 0]), 0] = min(means)
    return fitted


def gram(rows: Floats) -> Floats:
    """Compute X'X with the ridge penalty for inputs of shape [N, D + 1]: shape [D + 1, D + 1]."""
    penalty = RIDGE * np.eye(rows.shape[1])
    penalty[0, 0] = 1e-9  # the intercept is not penalised, only kept solvable
    return np.asarray(rows.T @ rows + penalty, dtype=np.float64)


def learn(
    choices: Choices, values: Floats, names: Sequence[str], settings: Settings
) -> tuple[Policy, Floats]:
    """Learn a policy by gradient ascent on an off-policy estimate of its value.

    Args:
        choices: The choices to learn from, in time order, shape [N].
        values: Features of each rollout, shape [N, D]; D = 0 learns a policy without features.
        names: Names of the features, length D.
        settings: Objective, exploration, penalties and step sizes.

    Returns:
        The policy, and the reward model, shape [K, D + 1].

    Raises:
        DataError: If exploration leaves nothing to learn.

    Source:
        Dudík, Langford & Li, Doubly robust policy evaluation and learning (2011), for the default
        objective.
    """
    shares = shares_of(choices, settings.exploration)
    standard = Standardisation.of(values)
    inputs = standard.apply(values)
    model = reward_model(choices, inputs)
    cells = cells_of(choices, inputs, baseline=settings.estimator == "reinforce")
    raw = GRADIENTS[settings.estimator](cells, cells.inputs @ model.T)
    # In standard deviations of the reward: then learning rate, KL weight and entropy mean the same
    # for rewards of any unit. The deviation of equal rewards is 0.
    scale = float(choices.rewards.std()) or 1.0
    weights = ascend(cells, lambda pi: raw(pi) / scale, shares, behavior_of(choices), settings)
    return Policy(choices.arms, tuple(names), standard, weights, shares), model


def learn_shares(choices: Choices, settings: Settings) -> Floats:
    """Learn the share of each arm without features, shape [K]."""
    nothing = np.zeros((len(choices.taken), 0))
    policy, _ = learn(choices, nothing, (), settings)
    return np.asarray(policy.probabilities(nothing[:1])[0], dtype=np.float64)


def logged_under(choices: Choices, probabilities: Floats, modelled: Floats) -> Logged:
    """Compute the importance weights of logged choices under a contextual policy.

    Args:
        choices: The choices of the behavior policy.
        probabilities: Probability of each arm for each rollout, shape [N, K].
        modelled: Modelled reward of each arm for each rollout, shape [N, K].
    """
    rows = np.arange(len(choices.taken))
    return Logged(
        rewards=choices.rewards,
        weights=probabilities[rows, choices.taken] / choices.propensities,
        modelled_taken=modelled[rows, choices.taken],
        modelled_policy=(probabilities * modelled).sum(axis=1),
    )
