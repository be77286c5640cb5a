"""Objectives that learning can maximise: estimates of a policy's value, with their derivatives."""

from collections.abc import Callable

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.off_policy.clipped_ips import CLIP
from otel_lightning.learner.policy.softmax.cells import Cells

MAX_WEIGHT = 5.0
"""Largest importance weight of `reinforce`, as in azure-agents-learning-sdk."""
Gradient = Callable[[Floats], Floats]
"""Function from the arms' probabilities for each input to the derivatives of the policy's value by
them, both shape [C, K]."""


def _doubly_robust(cells: Cells, model: Floats) -> Gradient:
    """V = sum of pi * q + pi / mu * (r - q); it is linear in pi."""
    modelled = cells.counts * model.ravel()[cells.place]
    # `cells.rewards` and `cells.counts` are shares of all rollouts, so every sum here is already a
    # mean.
    residuals = cells.table((cells.rewards - modelled) / cells.propensities)
    slope = cells.shares[:, None] * model + residuals
    return lambda _: slope


def _snips(cells: Cells, model: Floats) -> Gradient:
    """V = (sum of w * r) / (sum of w), with w = pi / mu."""
    del model
    rewards = cells.table(cells.rewards / cells.propensities)
    weights = cells.table(cells.counts / cells.propensities)

    def slope(pi: Floats) -> Floats:
        # Quotient rule for R / W with R = sum of pi * rewards and W = sum of pi * weights.
        total = float((pi * weights).sum())
        return (rewards - weights * float((pi * rewards).sum()) / total) / total

    return slope


def _ips(cells: Cells, model: Floats) -> Gradient:
    """V = sum of min(pi / mu, CLIP) * r; a weight at the limit has derivative 0."""
    del model

    def slope(pi: Floats) -> Floats:
        below = pi.ravel()[cells.place] <= CLIP * cells.propensities
        return cells.table(np.where(below, cells.rewards / cells.propensities, 0.0))

    return slope


def _reinforce(cells: Cells, model: Floats) -> Gradient:
    """REINFORCE with a moving baseline, and min(pi / mu, 5) as a constant before grad log pi."""
    del model

    def slope(pi: Floats) -> Floats:
        now = np.maximum(pi.ravel()[cells.place], 1e-12)
        weights = np.minimum(now / cells.propensities, MAX_WEIGHT)
        # grad log pi = 1 / pi by each probability; the weight is a constant here, as in
        # azure-agents-learning-sdk.
        return cells.table(weights * cells.advantages / now)

    return slope


GRADIENTS: dict[str, Callable[[Cells, Floats], Gradient]] = {
    "ips": _ips,
    "snips": _snips,
    "doubly_robust": _doubly_robust,
    "reinforce": _reinforce,
}
"""By name: function of the cells and the modelled reward of each arm, [C, K]; the gradient."""
