"""Compare returns of calls that saw the same state."""

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.compare import compare
from otel_lightning.learner.credit.discount import discounted
from otel_lightning.learner.credit.steps import Method, Options, Steps


def anchor_state(steps: Steps, options: Options) -> Floats:
    """Compare the return of each call with the returns of calls in the same state.

    A[i,t] = (G[i,t] - b) / s, where G is the discounted return. The baseline b and the scale s
    come from all calls (j,k) of the task's rollouts with state[j,k] = state[i,t]. A state that
    was seen once gives 0. The paper uses `baseline` mean and `scale` std or none; its full
    advantage is `group+anchor_state`.

    Args:
        steps: The calls.
        options: `gamma`, `baseline` and `scale`.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Feng et al., Group-in-Group Policy Optimization (2025, arXiv:2505.10978): discounted
        returns, anchor state grouping and the step relative advantage.
    """
    returns = discounted(steps.rewards, steps.rollouts, options.gamma)
    # Equal states of different tasks are different groups: one number for each pair of task and
    # state.
    in_task = steps.tasks * (steps.states.max() + 1) + steps.states
    _, groups = np.unique(in_task, return_inverse=True)
    return compare(returns, groups, options)


METHOD = Method(anchor_state, compares=True, divides=True, needs_states=True)
