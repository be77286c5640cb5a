"""Each reward where it was earned, and the outcome discounted back."""

from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import Floats, Method, Options, Steps


def intermediate(steps: Steps, options: Options) -> Floats:
    """Give each call what it earned itself, and its share of how the rollout ended.

    A[t] = e[t] + gamma^(T-1-t) * o, where o is the outcome, which judges the whole rollout, and
    e[t] is what else was earned at the call. Unlike in a return, a reward in the middle does not
    count for the calls before it.

    Args:
        steps: The calls.
        options: `gamma`.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Wei et al., Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Reward Design
        (2025, arXiv:2505.11821): the turn's own reward plus the outcome's, here uncompared.
    """
    earned = steps.rewards - steps.outcomes
    return earned + discounted(steps.outcomes, steps.rollouts, options.gamma)


METHOD = Method(intermediate)
