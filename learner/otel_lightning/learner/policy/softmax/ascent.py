"""Gradient ascent on the value of a softmax policy; pure numpy, deterministic."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from otel_lightning.learner.arrays import Booleans, Floats
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.softmax.cells import Cells
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings
from otel_lightning.learner.policy.softmax.objectives import Gradient

STEPS_IN_CONTEXT = 400
RATE_IN_CONTEXT = 2.0
RIDGE = 1e-3
HALVINGS = 40
CONVERGED = 1e-7
"""Largest derivative at which ascent stops."""


class Shares(NamedTuple):
    """How logits become shares: pi = floor + rest * softmax(logits of the learned arms)."""

    floor: Floats
    """Share that each arm has at least, shape [K]; 0 for a retired arm."""
    learned: Booleans
    """Arms whose share is learned, shape [K]; the others have exactly their floor."""

    @property
    def rest(self) -> float:
        """Share of the traffic that the softmax divides."""
        return 1 - float(self.floor.sum())

    def soft(self, logits: Floats) -> Floats:
        """Compute the softmax over the learned arms, shape [C, K]."""
        masked = logits if self.learned.all() else np.where(self.learned, logits, -np.inf)
        # Subtracting the largest logit changes no share and keeps exp from overflowing. Arms that
        # are not learned have logit -inf, hence power 0.
        powers = np.exp(masked - masked.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float64)

    def of(self, logits: Floats) -> Floats:
        """Compute the probability of each arm, shape [C, K]."""
        return self.floor + self.rest * self.soft(logits)


def shares_of(choices: Choices, exploration: float) -> Shares:
    """Divide the exploration evenly between the arms that may be served.

    A new arm is held at its share until it has enough rewarded rollouts (`Choices.held`).

    Raises:
        DataError: If exploration leaves nothing to learn.
    """
    if not 0 <= exploration < 1:
        raise DataError(
            f"An exploration of {exploration:g} leaves nothing to learn. Choose --exploration "
            "below 1: it is the share of all traffic that is divided evenly."
        )
    # Floors: a learned arm has its part of the exploration, a new arm what it is held at, a retired
    # arm 0.
    even = np.where(choices.may_serve, exploration / max(int(choices.may_serve.sum()), 1), 0.0)
    held = np.maximum(np.nan_to_num(choices.held, nan=0.0), even) if len(choices.held) else even
    floor = np.where(choices.learned, even, np.where(choices.may_serve, held, 0.0))
    return Shares(floor, choices.learned)


def behavior_of(choices: Choices) -> Floats:
    """Return the logged shares of the arms that may be served, shape [K], and 0 for the others.

    One imagined choice of each arm keeps the divergence finite where an arm was never tried.
    """
    tried = np.where(choices.may_serve, choices.tried + 1, 0.0)
    return np.asarray(tried / tried.sum(), dtype=np.float64)


def ascend(
    cells: Cells, gradient: Gradient, shares: Shares, behavior: Floats, settings: Settings
) -> Floats:
    """Maximise V(pi) - kl_weight * KL(pi || mu) + entropy * H(pi) over the weights of a policy.

    A trust region then moves the weights back towards mu, until the divergence is small enough.

    Args:
        cells: The summed choices.
        gradient: Derivative of V, in standard deviations of the reward.
        shares: How logits become shares.
        behavior: Logged shares of the arms, mu, shape [K].
        settings: Penalties and step sizes.

    Returns:
        The weights of the logits, shape [K, D + 1].

    Source:
        Williams, Simple statistical gradient-following algorithms (1992), for the softmax;
        Swaminathan & Joachims, The self-normalized estimator (2015), with a KL penalty instead of
        the variance penalty.
    """
    in_context = cells.inputs.shape[1] > 1
    rate = RATE_IN_CONTEXT if in_context else settings.learning_rate
    # A larger penalty makes the objective steeper: without smaller steps, ascent overshoots.
    rate /= 1 + settings.kl_weight + settings.entropy
    start = np.zeros((len(behavior), cells.inputs.shape[1]))
    # Ascent begins at the logged shares: the intercept is log mu and no feature counts, so the KL
    # penalty is 0 there (but for the floors).
    start[:, 0] = log_behavior = np.log(np.maximum(behavior, 1e-12))
    weights = start.copy()
    pull, spread = settings.kl_weight, settings.entropy
    each, rest = cells.shares[:, None], shares.rest
    for _ in range(STEPS_IN_CONTEXT if in_context else settings.steps):
        soft = shares.soft(cells.inputs @ weights.T)
        pi = shares.floor + rest * soft
        log = np.log(np.maximum(pi, 1e-12))
        # Derivative of the objective by pi: d KL(pi || mu) / d pi = log pi - log mu + 1, and d
        # H(pi) / d pi = -(log pi + 1). [C, K]
        slope = gradient(pi) - each * (pull * (log - log_behavior + 1) + spread * (log + 1))
        # Chain rule through the softmax: ds[j]/dz[k] = s[j] * ([j = k] - s[k]). The factor `rest`
        # is the share of the traffic that the softmax divides.
        slope = rest * soft * (slope - (soft * slope).sum(axis=1, keepdims=True))
        change = slope.T @ cells.inputs
        # The intercepts are not penalised: they hold the shares that do not depend on features.
        change[:, 1:] -= RIDGE * weights[:, 1:]
        weights += rate * change
        if np.abs(change).max() < CONVERGED:
            break
    if settings.trust_region is None:
        return weights

    def diverges(candidate: Floats) -> float:
        return divergence(cells, shares.of(cells.inputs @ candidate.T), behavior)

    return _within(weights, start, diverges, settings.trust_region)


def divergence(cells: Cells, pi: Floats, behavior: Floats) -> float:
    """Compute the mean over inputs of KL(pi || mu), in nats."""
    # An arm with share 0 adds 0 to the divergence (p log p tends to 0), so any positive number may
    # stand for its share in the logarithm.
    ratio = np.where(pi > 0, pi, 1.0) / np.where(behavior > 0, behavior, 1.0)
    return float(cells.shares @ (pi * np.log(ratio)).sum(axis=1))


def _within(
    weights: Floats, start: Floats, diverges: Callable[[Floats], float], limit: float
) -> Floats:
    """Find the farthest point between the logged shares and the weights in the trust region."""
    if diverges(weights) <= limit:
        return weights
    inside, outside = 0.0, 1.0
    for _ in range(HALVINGS):
        # Invariant: at `inside` the divergence is within the limit, at `outside` it is not. 40
        # halvings give twelve digits.
        middle = (inside + outside) / 2
        if diverges(start + middle * (weights - start)) <= limit:
            inside = middle
        else:
            outside = middle
    return start + inside * (weights - start)
