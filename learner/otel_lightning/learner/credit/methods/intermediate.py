"""The own reward of each call, plus the discounted outcome of the rollout."""

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import Method, Options, Steps


def intermediate(steps: Steps, options: Options) -> Floats:
    """Add the own reward of each call and the discounted outcome of its rollout.

    A[t] = e[t] + gamma^(T-1-t) * o, where o is the outcome, the reward of the whole rollout, and
    e[t] is the other reward of the call. Unlike in a return, an intermediate reward does not
    count for earlier calls.

    Args:
        steps: The calls.
        options: `gamma`.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Wei et al., Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Reward Design
        (2025, arXiv:2505.11821): the reward of the turn plus the outcome; here without a group.
    """
    earned = steps.rewards - steps.outcomes
    return earned + discounted(steps.outcomes, steps.rollouts, options.gamma)


METHOD = Method(intermediate)
