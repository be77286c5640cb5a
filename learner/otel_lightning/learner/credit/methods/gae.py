"""Generalized advantage estimation over the calls of a rollout."""

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import Method, Options, Steps, first_of, ungrouped
from otel_lightning.learner.credit.value import Values, fitted, leave_one_out


def gae(steps: Steps, options: Options) -> Floats:
    """Sum the discounted temporal differences from each call to the end of its rollout.

    delta[t] = r[t] + gamma * V(s[t+1]) - V(s[t]); A[t] = delta[t] + gamma * lam * A[t+1].
    After the last call, V is 0 if the rollout terminated, and the estimated remaining value of the
    task if it was truncated. If lam is 1, A[t] = G[t] - V(s[t]); if lam is 0, A[t] = delta[t].
    If `value` is leave_one_out, the only rollout of a task has no comparison and gets 0.

    Args:
        steps: The calls.
        options: `gamma`, `lam` and `value`.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation
        (2016, arXiv:1506.02438), eq. 16; Pardo et al., Time Limits in Reinforcement Learning (2018,
        arXiv:1712.00378), for the bootstrap where a rollout was truncated.
    """
    returns = discounted(steps.rewards, steps.rollouts, options.gamma)
    values = (fitted if options.value == "fitted" else leave_one_out)(returns, steps)
    delta = steps.rewards + options.gamma * _following(values, steps) - values.at
    advantages = discounted(delta, steps.rollouts, options.gamma * options.lam)
    return advantages if options.value == "fitted" else np.where(ungrouped(steps), 0.0, advantages)


def _following(values: Values, steps: Steps) -> Floats:
    # Shifting by one call gives V(s[t+1]), except at the last call of a rollout, where the next
    # entry belongs to another rollout. Those entries are replaced below.
    following = np.append(values.at[1:], 0.0)
    last = np.append(first_of(steps.rollouts)[1:], len(following)) - 1
    following[last] = np.where(steps.truncated[last], values.after, 0.0)
    return following


def _compares(options: Options) -> bool:
    """Return whether the value comes from the task's other rollouts."""
    return options.value == "leave_one_out"


METHOD = Method(gae, compares=_compares)
