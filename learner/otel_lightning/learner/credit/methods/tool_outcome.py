"""Rewards from the success of the tools that a call requested."""

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import Method, Options, Steps


def tool_outcome(steps: Steps, options: Options) -> Floats:
    """Reward each call for tools that succeeded, and punish it for tools that failed.

    The formula of `intermediate`, with e[t] + c * (successes[t] - failures[t]) instead of e[t].

    Args:
        steps: The calls.
        options: `tool_reward`, which is c, and `gamma`.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Luo et al., Agent Lightning (2025, arXiv:2508.03680): Automatic Intermediate Rewarding,
        which turns monitored signals, such as the status of tool calls, into intermediate rewards.
    """
    earned = steps.rewards + options.tool_reward * steps.tools - steps.outcomes
    return earned + discounted(steps.outcomes, steps.rollouts, options.gamma)


METHOD = Method(tool_outcome, needs_tools=True)
