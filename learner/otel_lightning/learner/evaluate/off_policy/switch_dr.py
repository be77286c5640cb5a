"""The switch doubly robust estimator."""

import numpy as np

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate

# The same limit as `clipped_ips.CLIP`.
THRESHOLD = 10.0


def switch_dr(logged: Logged) -> Estimate:
    """Estimate a policy's value doubly robustly, but only by the model where weights are large.

    V = mean of q(policy)[i] + [w[i] <= THRESHOLD] * w[i] * (r[i] - q(taken)[i]).

    Args:
        logged: Rewards, importance weights and the model's predictions.

    Returns:
        The value, with the standard error of the mean.

    Source:
        Wang, Agarwal & Dudík, Optimal and adaptive off-policy evaluation (2017), eq. 5.
    """
    weights = np.where(logged.weights <= THRESHOLD, logged.weights, 0.0)
    correction = weights * (logged.rewards - logged.modelled_taken)
    return mean_estimate(logged.modelled_policy + correction)
