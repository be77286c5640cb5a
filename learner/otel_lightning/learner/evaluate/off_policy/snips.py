"""Self-normalized inverse propensity scoring."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged
from otel_lightning.learner.evaluate.off_policy.method import Method


def snips(logged: Logged) -> Estimate:
    """Estimate a policy's value by self-normalized inverse propensity scoring.

    V = sum of w[i] * r[i] / sum of w[i]. It stays in the range of the rewards, with a bias that
    falls as 1 / N.

    Args:
        logged: N rollouts with their rewards r and importance weights w.

    Returns:
        The value, in units of the reward, with its standard error by the delta method; NaN where
        all weights are 0.

    Source:
        Swaminathan & Joachims, The self-normalized estimator for counterfactual learning (2015);
        Owen, Monte Carlo theory, methods and examples, section 9.2, for the standard error.

    Example:
        >>> import numpy as np
        >>> logged = Logged.without_model(np.array([1.0, 0.0, 1.0]), np.array([3.0, 0.5, 1.0]))
        >>> round(snips(logged).value, 3)
        0.889
    """
    return Estimate(logged.weights * logged.rewards, logged.weights, small_sample=False)


METHOD = Method(snips, is_ratio=True)
