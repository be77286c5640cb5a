"""The discounted return from each call."""

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import Method, Options, Steps


def return_to_go(steps: Steps, options: Options) -> Floats:
    """Compute the discounted return from each call to the end of its rollout.

    G[t] = r[t] + gamma * G[t+1], with G[T] = 0.

    Args:
        steps: The calls.
        options: `gamma`.

    Returns:
        The return of each call, shape [N].

    Source:
        Sutton & Barto, Reinforcement Learning (2nd ed.), eq. 3.9.
    """
    return discounted(steps.rewards, steps.rollouts, options.gamma)


METHOD = Method(return_to_go)
