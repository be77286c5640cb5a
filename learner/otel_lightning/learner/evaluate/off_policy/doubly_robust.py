"""The doubly robust estimator."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate


def doubly_robust(logged: Logged) -> Estimate:
    """Estimate a policy's value by a model of the reward, corrected where actions were logged.

    V = mean of q(policy)[i] + w[i] * (r[i] - q(taken)[i]). It is unbiased if the propensities or
    the model are right. Without a model it equals inverse propensity scoring.

    Args:
        logged: Rewards, importance weights and the model's predictions. Fit the model on rows
            other than these.

    Returns:
        The value, with the standard error of the mean.

    Source:
        Dudík, Langford & Li, Doubly robust policy evaluation and learning (2011).
    """
    correction = logged.weights * (logged.rewards - logged.modelled_taken)
    return mean_estimate(logged.modelled_policy + correction)
