"""The direct method."""

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged, mean_estimate


def direct_method(logged: Logged) -> Estimate:
    """Estimate a policy's value by a model of the reward alone.

    V = mean of q(policy)[i]. The weights add no variance, but the model's bias is not corrected.

    Args:
        logged: The model's predictions. Fit the model on rows other than these.

    Returns:
        The value, with the standard error of the mean, which ignores the model's own error:
        `evaluate.estimates` adds it.

    Source:
        Beygelzimer & Langford, The offset tree for learning with partial labels (2009).
    """
    return mean_estimate(logged.modelled_policy)
