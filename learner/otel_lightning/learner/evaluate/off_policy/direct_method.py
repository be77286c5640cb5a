"""The direct method."""

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate
from otel_lightning.learner.evaluate.off_policy.method import Method


def direct_method(logged: Logged) -> Estimate:
    """Estimate a policy's value by a model of the reward alone.

    V = mean of q(policy)[i]. The weights add no variance, but the model's bias is not corrected.

    Args:
        logged: N rollouts with the model's predictions q(policy) for the evaluated policy. Fit the
            model on other rollouts.

    Returns:
        The value, in units of the reward, with the standard error of the mean, which ignores the
        model's own error: `evaluate.estimates` adds it.

    Source:
        Dudík, Langford & Li, Doubly robust policy evaluation and learning (2011), section 2, which
        calls it the direct method.

    Example:
        >>> logged = Logged(*np.array([[1.0, 0.0], [2.0, 0.0], [0.9, 0.2], [0.8, 0.8]]))
        >>> direct_method(logged).value
        0.8
    """
    return mean_estimate(logged.modelled_policy)


def left_out(weights: Floats) -> Floats:
    """Return zeros: no weight is used."""
    return np.zeros_like(weights)


METHOD = Method(direct_method, weights=left_out, uses_model=True, biased=True)
