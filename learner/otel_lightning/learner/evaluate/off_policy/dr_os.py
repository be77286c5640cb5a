"""Doubly robust estimation with optimistic shrinkage."""

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate
from otel_lightning.learner.evaluate.off_policy.method import Method

SHRINKAGE = 100.0
"""Lambda: at 0 it is the direct method, at infinity `doubly_robust`."""


def shrunk(weights: Floats) -> Floats:
    """Compute lambda * w[i] / (w[i]^2 + lambda), shape [N]."""
    return np.asarray(SHRINKAGE * weights / (weights**2 + SHRINKAGE), dtype=np.float64)


def dr_os(logged: Logged) -> Estimate:
    """Estimate a policy's value doubly robustly, with large weights shrunk towards 0.

    V = mean of q(policy)[i] + lambda * w[i] / (w[i]^2 + lambda) * (r[i] - q(taken)[i]).

    Args:
        logged: N rollouts with their rewards r, importance weights w, and the model's predictions
            for the logged action, q(taken), and for the evaluated policy, q(policy). Fit the model
            on other rollouts.

    Returns:
        The value, in units of the reward, with the standard error of the mean.

    Source:
        Su, Dimakopoulou, Krishnamurthy & Dudík, Doubly robust off-policy evaluation with
        shrinkage (2020, arXiv:1907.09623): the weights of optimistic shrinkage.

    Example:
        >>> logged = Logged(*np.array([[1.0, 0.0], [40.0, 0.5], [0.9, 0.2], [0.8, 0.8]]))
        >>> round(dr_os(logged).value, 3)
        0.868
    """
    correction = shrunk(logged.weights) * (logged.rewards - logged.modelled_taken)
    return mean_estimate(logged.modelled_policy + correction)


METHOD = Method(dr_os, weights=shrunk, uses_model=True, biased=True)
