"""The doubly robust estimator."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate
from otel_lightning.learner.evaluate.off_policy.method import Method


def doubly_robust(logged: Logged) -> Estimate:
    """Estimate a policy's value by a model of the reward, corrected where actions were logged.

    V = mean of q(policy)[i] + w[i] * (r[i] - q(taken)[i]). It is unbiased if the propensities or
    the model are right. Without a model it equals inverse propensity scoring.

    Args:
        logged: N rollouts with their rewards r, importance weights w, and the model's predictions
            for the logged action, q(taken), and for the evaluated policy, q(policy). Fit the model
            on other rollouts.

    Returns:
        The value, in units of the reward, with the standard error of the mean.

    Source:
        Dudík, Langford & Li, Doubly robust policy evaluation and learning (2011).

    Example:
        >>> import numpy as np
        >>> logged = Logged(*np.array([[1.0, 0.0], [2.0, 0.0], [0.9, 0.2], [0.8, 0.8]]))
        >>> round(doubly_robust(logged).value, 3)
        0.9
    """
    correction = logged.weights * (logged.rewards - logged.modelled_taken)
    return mean_estimate(logged.modelled_policy + correction)


METHOD = Method(doubly_robust, uses_model=True)
