"""A linear softmax policy over arms and features of the input; pure numpy, deterministic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.policy.softmax import Choices, Floats, Settings

RIDGE = 1.0
"""Strength of the reward model's ridge penalty: it weighs as much as one rollout at the mean."""
STEPS = 400
LEARNING_RATE = 2.0


@dataclass(frozen=True, slots=True)
class Standard:
    """Means and deviations that standardise features; an unknown value becomes the mean."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, values: Floats) -> "Standard":
        """Compute the mean and deviation of each column; a constant column gets deviation 1."""
        deviation = np.nanstd(values, axis=0)
        return cls(np.nanmean(values, axis=0), np.where(deviation > 0, deviation, 1.0))

    def apply(self, values: Floats) -> Floats:
        """Standardise values of shape [N, D] and put a column of ones before them."""
        standard = np.nan_to_num((values - self.mean) / self.deviation, nan=0.0)
        return np.concatenate([np.ones((len(values), 1)), standard], axis=1)


@dataclass(frozen=True, slots=True)
class Policy:
    """pi(a | x) = exploration / K + (1 - exploration) * softmax(W [1, x])[a], over served arms."""

    arms: tuple[str, ...]
    features: tuple[str, ...]
    standard: Standard
    weights: Floats
    """Shape [K, D + 1]."""
    served: NDArray[np.bool_]
    exploration: float

    def probabilities(self, values: Floats) -> Floats:
        """Compute the probability of each arm for features of shape [N, D]: shape [N, K]."""
        return _shares(self.standard.apply(values) @ self.weights.T, self.served, self.exploration)

    def as_parameters(self) -> dict[str, Any]:
        """Write the policy as JSON values."""
        return {
            "arms": list(self.arms),
            "features": list(self.features),
            "mean": self.standard.mean.tolist(),
            "deviation": self.standard.deviation.tolist(),
            "weights": self.weights.tolist(),
            "served": self.served.tolist(),
            "exploration": self.exploration,
        }


def from_parameters(parameters: dict[str, Any]) -> Policy:
    """Rebuild a policy from the JSON values that `Policy.as_parameters` wrote."""
    return Policy(
        tuple(parameters["arms"]),
        tuple(parameters["features"]),
        Standard(np.array(parameters["mean"]), np.array(parameters["deviation"])),
        np.array(parameters["weights"]),
        np.array(parameters["served"], dtype=bool),
        float(parameters["exploration"]),
    )


def reward_model(choices: Choices, inputs: Floats) -> Floats:
    """Fit the reward of each arm by a ridge regression on the inputs, shape [K, D + 1].

    An arm that was never tried gets the mean reward of the worst arm.
    """
    count = inputs.shape[1]
    fitted, means = np.zeros((len(choices.arms), count)), []
    for arm in range(len(choices.arms)):
        of_arm = choices.taken == arm
        if not of_arm.any():
            fitted[arm, 0] = np.nan
            continue
        rows, rewards = inputs[of_arm], choices.rewards[of_arm]
        means.append(float(rewards.mean()))
        penalty = RIDGE * np.eye(count)
        penalty[0, 0] = 1e-9  # the intercept is not penalised, only kept solvable
        centred = np.linalg.solve(rows.T @ rows + penalty, rows.T @ rewards)
        fitted[arm] = centred
    fitted[np.isnan(fitted[:, 0]), 0] = min(means)
    return fitted


def learn(
    choices: Choices, values: Floats, names: Sequence[str], settings: Settings
) -> tuple[Policy, Floats]:
    """Learn a contextual policy by gradient ascent on its doubly robust value.

    Maximises V(pi) / sd(r) - kl_weight * KL(pi || mu) - a small ridge, with
    V = mean over i of sum over a of pi(a | x[i]) * G[i, a] and
    G[i, a] = q(x[i], a) + [a = a[i]] * (r[i] - q(x[i], a)) / mu[i].

    Args:
        choices: The choices to learn from, shape [N].
        values: Features of each rollout, shape [N, D].
        names: Names of the features, length D.
        settings: Exploration and penalties.

    Returns:
        The policy, and the reward model, shape [K, D + 1].

    Raises:
        DataError: If exploration leaves nothing to learn.

    Source:
        Dudík, Langford & Li, Doubly robust policy evaluation and learning (2011).
    """
    if not 0 <= settings.exploration < 1:
        raise DataError(f"An exploration of {settings.exploration:g} leaves nothing to learn.")
    standard = Standard.of(values)
    inputs = standard.apply(values)
    model = reward_model(choices, inputs)
    rows = np.arange(len(choices.taken))
    gains = inputs @ model.T  # [N, K]
    residuals = choices.rewards - gains[rows, choices.taken]
    gains[rows, choices.taken] += residuals / choices.propensities
    gains /= choices.rewards.std() or 1.0
    # One imagined choice of each arm keeps the divergence finite where an arm was never tried.
    frequencies = choices.per_arm(np.ones_like(choices.rewards)) + 1
    behavior = np.log(frequencies / frequencies.sum())
    weights = np.zeros((len(choices.arms), inputs.shape[1]))
    weights[:, 0] = behavior
    allowed, share = choices.may_serve, 1 - settings.exploration
    for _ in range(STEPS):
        soft = _softmax(inputs @ weights.T, allowed)
        pull = np.log(np.maximum(soft, 1e-12)) - behavior
        slope = gains - settings.kl_weight * pull
        slope = soft * (slope - (soft * slope).sum(axis=1, keepdims=True))
        ridge = 1e-3 * weights
        ridge[:, 0] = 0
        weights += LEARNING_RATE * (share * slope.T @ inputs / len(rows) - ridge)
    policy = Policy(choices.arms, tuple(names), standard, weights, allowed, settings.exploration)
    return policy, model


def seen_by(choices: Choices, probabilities: Floats, modelled: Floats) -> Logged:
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


def _shares(logits: Floats, served: NDArray[np.bool_], exploration: float) -> Floats:
    soft = _softmax(logits, served)
    even = served / served.sum()
    return np.asarray(exploration * even + (1 - exploration) * soft, dtype=np.float64)


def _softmax(logits: Floats, served: NDArray[np.bool_]) -> Floats:
    masked = np.where(served, logits, -np.inf)
    powers = np.exp(masked - masked.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float64)
