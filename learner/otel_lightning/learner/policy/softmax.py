"""A softmax policy over arms, learned from logged choices; pure numpy, deterministic."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.off_policy import Logged

Floats = NDArray[np.float64]
BASELINE_DECAY = 0.9
LARGEST_WEIGHT = 5.0
Gradient = Callable[[Floats], Floats]
"""Function from the arms' probabilities to the gradient of the policy's value, both shape [K]."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Logged choices among `arms`, one per rollout; arrays of shape [N]."""

    arms: tuple[str, ...]
    taken: NDArray[np.int64]
    propensities: Floats
    rewards: Floats
    tasks: NDArray[np.int64]
    served: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    """Which arms may be served, shape [K]; empty means all. The others are retired."""

    def where(self, kept: NDArray[np.bool_]) -> "Choices":
        """Select rollouts by a mask of shape [N]."""
        return Choices(
            self.arms,
            self.taken[kept],
            self.propensities[kept],
            self.rewards[kept],
            self.tasks[kept],
            self.served,
        )

    def per_arm(self, values: Floats) -> Floats:
        """Sum values of shape [N] by arm, shape [K]."""
        return np.bincount(self.taken, values, minlength=len(self.arms)).astype(np.float64)

    @property
    def may_serve(self) -> NDArray[np.bool_]:
        """Which arms may be served, shape [K]."""
        return self.served if len(self.served) else np.ones(len(self.arms), bool)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for learning a softmax policy."""

    estimator: str = "doubly_robust"
    exploration: float = 0.1
    kl_weight: float = 0.05
    steps: int = 3000
    learning_rate: float = 1.0


def learn(choices: Choices, settings: Settings) -> Floats:
    """Learn the probability of each arm by gradient ascent on the logits.

    Maximises V(pi) / sd(r) - kl_weight * KL(pi || mu), where V is the off-policy estimate, mu
    the logged frequencies and pi = exploration / K + (1 - exploration) * softmax(logits). So each
    arm keeps at least exploration / K of the traffic, and the next round can still compare arms.

    Args:
        choices: The choices to learn from.
        settings: Estimator, exploration and step sizes.

    Returns:
        The probability of each arm, shape [K]; 0 for an arm that may not be served.

    Raises:
        DataError: If exploration leaves nothing to learn.

    Source:
        Swaminathan & Joachims, The self-normalized estimator (2015), with a KL penalty
        instead of the variance penalty.
    """
    if not 0 <= settings.exploration < 1:
        raise DataError(
            f"An exploration of {settings.exploration:g} leaves nothing to learn. Choose "
            "--exploration below 1: it is the share of all traffic that is divided evenly."
        )
    allowed = choices.may_serve
    count = int(allowed.sum())
    floor, share = settings.exploration / count, 1 - settings.exploration
    # One imagined choice of each arm keeps the divergence finite where an arm was never tried.
    frequencies = choices.per_arm(np.ones_like(choices.rewards))[allowed] + 1
    behavior = frequencies / frequencies.sum()
    gradient = GRADIENTS[settings.estimator](choices)
    scale = choices.rewards.std() or 1.0
    logits = np.log(behavior)
    probabilities = np.zeros(len(allowed))
    # A larger KL weight makes the objective steeper: without smaller steps, ascent overshoots.
    step = settings.learning_rate / (1 + settings.kl_weight)
    for _ in range(settings.steps):
        soft = _softmax(logits)
        probabilities[allowed] = pi = floor + share * soft
        slope = gradient(probabilities)[allowed] / scale
        slope -= settings.kl_weight * (np.log(np.maximum(pi, 1e-12) / behavior) + 1)
        logits = logits + step * share * soft * (slope - soft @ slope)
    probabilities[allowed] = floor + share * _softmax(logits)
    return probabilities


def reward_model(choices: Choices) -> Floats:
    """Return each arm's mean reward, shape [K]; an untried arm gets the mean of the worst arm."""
    tried = choices.per_arm(np.ones_like(choices.rewards))
    means = choices.per_arm(choices.rewards) / np.maximum(tried, 1)
    return np.where(tried > 0, means, means[tried > 0].min())


def seen_by(choices: Choices, probabilities: Floats, model: Floats) -> Logged:
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
        modelled_policy=np.full(len(choices.taken), probabilities @ model),
    )


def _ips_gradient(choices: Choices) -> Gradient:
    slope = choices.per_arm(choices.rewards / choices.propensities) / len(choices.taken)
    return lambda _: slope


def _snips_gradient(choices: Choices) -> Gradient:
    reward = choices.per_arm(choices.rewards / choices.propensities)
    weight = choices.per_arm(1 / choices.propensities)
    return lambda pi: (reward - weight * (pi @ reward) / (pi @ weight)) / (pi @ weight)


def _doubly_robust_gradient(choices: Choices) -> Gradient:
    model = reward_model(choices)
    residuals = (choices.rewards - model[choices.taken]) / choices.propensities
    slope = model + choices.per_arm(residuals) / len(choices.taken)
    return lambda _: slope


def _reinforce_gradient(choices: Choices) -> Gradient:
    """REINFORCE with a moving baseline and weights up to 5, like azure-agents-learning-sdk."""
    baselines = np.zeros_like(choices.rewards)
    baseline = 0.0
    for i, reward in enumerate(choices.rewards.tolist()):
        baselines[i] = baseline
        baseline = BASELINE_DECAY * baseline + (1 - BASELINE_DECAY) * reward
    weights = np.minimum(1 / choices.propensities, LARGEST_WEIGHT)
    slope = choices.per_arm(weights * (choices.rewards - baselines)) / len(choices.taken)
    return lambda _: slope


GRADIENTS: dict[str, Callable[[Choices], Gradient]] = {
    "ips": _ips_gradient,
    "snips": _snips_gradient,
    "doubly_robust": _doubly_robust_gradient,
    "reinforce": _reinforce_gradient,
}


def _softmax(logits: Floats) -> Floats:
    powers: Floats = np.exp(logits - logits.max())
    total: float = powers.sum()
    return powers / total
