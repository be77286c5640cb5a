"""Inverse propensity scoring."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate


def ips(logged: Logged) -> Estimate:
    """Estimate a policy's value by inverse propensity scoring.

    V = mean of w[i] * r[i]. It is unbiased if every action was tried, but has a high variance.

    Args:
        logged: Rewards and importance weights.

    Returns:
        The value, with the standard error of the mean.

    Source:
        Horvitz & Thompson (1952); Strehl et al., Learning from logged implicit exploration
        data (2010).
    """
    return mean_estimate(logged.weights * logged.rewards)
