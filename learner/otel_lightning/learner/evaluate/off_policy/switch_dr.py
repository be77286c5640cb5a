"""The switch doubly robust estimator."""

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.off_policy.clipped_ips import CLIP
from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate
from otel_lightning.learner.evaluate.off_policy.method import Method

THRESHOLD = CLIP
"""Largest importance weight by which a reward corrects the model."""


def below_threshold(weights: Floats) -> Floats:
    """Compute [w[i] <= THRESHOLD] * w[i], shape [N]."""
    return np.where(weights <= THRESHOLD, weights, 0.0)


def switch_dr(logged: Logged) -> Estimate:
    """Estimate a policy's value doubly robustly, but only by the model where weights are large.

    V = mean of q(policy)[i] + [w[i] <= THRESHOLD] * w[i] * (r[i] - q(taken)[i]).

    Args:
        logged: N rollouts with their rewards r, importance weights w, and the model's predictions
            for the logged action, q(taken), and for the evaluated policy, q(policy). Fit the model
            on other rollouts.

    Returns:
        The value, in units of the reward, with the standard error of the mean.

    Source:
        Wang, Agarwal & Dudík, Optimal and adaptive off-policy evaluation in contextual bandits
        (2017, arXiv:1612.01205): SWITCH with the doubly robust estimator where weights are small.

    Example:
        >>> logged = Logged(*np.array([[1.0, 0.0], [40.0, 0.5], [0.9, 0.2], [0.8, 0.8]]))
        >>> round(switch_dr(logged).value, 3)
        0.75
    """
    correction = below_threshold(logged.weights) * (logged.rewards - logged.modelled_taken)
    return mean_estimate(logged.modelled_policy + correction)


METHOD = Method(switch_dr, weights=below_threshold, uses_model=True, biased=True)
