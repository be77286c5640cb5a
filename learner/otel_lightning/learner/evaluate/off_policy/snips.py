"""Self-normalized inverse propensity scoring."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged


def snips(logged: Logged) -> Estimate:
    """Estimate a policy's value by self-normalized inverse propensity scoring.

    V = sum of w[i] * r[i] / sum of w[i]. It stays in the range of the rewards, with a small bias.

    Args:
        logged: Rewards and importance weights.

    Returns:
        The value, with its standard error by the delta method; NaN where all weights are 0.

    Source:
        Swaminathan & Joachims, The self-normalized estimator (2015); Owen, Monte Carlo theory,
        methods and examples, section 9.2, for the standard error.
    """
    return Estimate(logged.weights * logged.rewards, logged.weights, small_sample=False)
