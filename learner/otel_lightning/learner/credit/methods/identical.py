"""The same return for every call of a rollout."""

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.steps import Method, Options, Steps, sums


def identical(steps: Steps, options: Options) -> Floats:  # noqa: ARG001 - one signature for all
    """Give each call the whole return of its rollout.

    A[i,t] = R[i] = sum of r[i,k] over all calls k of rollout i.

    Args:
        steps: The calls.
        options: Not used.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Luo et al., Agent Lightning (2025, arXiv:2508.03680): in LightningRL's credit assignment
        each call of an episode gets the return of the episode.
    """
    return sums(steps.rewards, steps.rollouts)[steps.rollouts]


METHOD = Method(identical, per_rollout=True)
