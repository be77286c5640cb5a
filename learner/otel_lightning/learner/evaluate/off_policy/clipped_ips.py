"""Clipped inverse propensity scoring."""

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate
from otel_lightning.learner.evaluate.off_policy.method import Method

CLIP = 10.0
"""Largest importance weight: the second moment of a score is at most 100 times that of the rewards.
`switch_dr` and learning by `ips` use the same limit."""


def clipped(weights: Floats) -> Floats:
    """Compute min(w[i], CLIP), shape [N]."""
    return np.minimum(weights, CLIP)


def clipped_ips(logged: Logged) -> Estimate:
    """Estimate a policy's value with weights of at most `CLIP`.

    V = mean of min(w[i], CLIP) * r[i]. It has less variance than `ips`, and underestimates the
    value if no reward is negative.

    Args:
        logged: N rollouts with their rewards r and importance weights w.

    Returns:
        The value, in units of the reward, with the standard error of the mean.

    Source:
        Ionides, Truncated importance sampling (2008); Bottou et al., Counterfactual reasoning
        and learning systems (2013), section 4.4.

    Example:
        >>> logged = Logged.without_model(np.array([1.0, 0.0]), np.array([40.0, 0.5]))
        >>> clipped_ips(logged).value
        5.0
    """
    return mean_estimate(clipped(logged.weights) * logged.rewards)


METHOD = Method(clipped_ips, weights=clipped, biased=True)
