"""Doubly robust estimation with optimistic shrinkage."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate

SHRINKAGE = 100.0
"""Lambda: at 0 it is the direct method, at infinity `doubly_robust`."""


def dr_os(logged: Logged) -> Estimate:
    """Estimate a policy's value doubly robustly, with large weights shrunk towards 0.

    V = mean of q(policy)[i] + lambda * w[i] / (w[i]^2 + lambda) * (r[i] - q(taken)[i]).

    Args:
        logged: Rewards, importance weights and the model's predictions.

    Returns:
        The value, with the standard error of the mean.

    Source:
        Su, Dimakopoulou, Krishnamurthy & Dudík, Doubly robust off-policy evaluation with
        shrinkage (2020), eq. 5.
    """
    weights = SHRINKAGE * logged.weights / (logged.weights**2 + SHRINKAGE)
    correction = weights * (logged.rewards - logged.modelled_taken)
    return mean_estimate(logged.modelled_policy + correction)
