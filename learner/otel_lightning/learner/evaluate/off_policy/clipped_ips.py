"""Clipped inverse propensity scoring."""

import numpy as np

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate

# The second moment of a score is then at most 100 times that of the rewards. `policy.objectives`
# and `estimates.used_weights` use the same limit.
CLIP = 10.0


def clipped_ips(logged: Logged) -> Estimate:
    """Estimate a policy's value with weights of at most `CLIP`.

    V = mean of min(w[i], CLIP) * r[i]. It has less variance than `ips`, and underestimates the
    value if no reward is negative.

    Args:
        logged: Rewards and importance weights.

    Returns:
        The value, with the standard error of the mean.

    Source:
        Ionides, Truncated importance sampling (2008); Bottou et al., Counterfactual reasoning
        and learning systems (2013), section 4.4.
    """
    return mean_estimate(np.minimum(logged.weights, CLIP) * logged.rewards)
