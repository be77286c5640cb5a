"""Inverse propensity scoring."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate
from otel_lightning.learner.evaluate.off_policy.method import Method


def ips(logged: Logged) -> Estimate:
    """Estimate a policy's value by inverse propensity scoring.

    V = mean of w[i] * r[i]. It is unbiased if every action was tried, but has a high variance, and
    may leave the range of the rewards.

    Args:
        logged: N rollouts with their rewards r and importance weights w.

    Returns:
        The value, in units of the reward, with the standard error of the mean.

    Source:
        Horvitz & Thompson, A generalization of sampling without replacement from a finite universe
        (1952); Strehl et al., Learning from logged implicit exploration data (2010).

    Example:
        >>> import numpy as np
        >>> logged = Logged.without_model(np.array([1.0, 0.0, 1.0]), np.array([3.0, 0.5, 1.0]))
        >>> round(ips(logged).value, 3)
        1.333
    """
    return mean_estimate(logged.weights * logged.rewards)


METHOD = Method(ips)
