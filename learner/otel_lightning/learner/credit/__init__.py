"""Credit: turn the rewards of a rollout into one advantage per call.

Each method is a pure function in its own file. All have one signature: they take
`(steps, options)` and return one advantage per call. A method per rollout and a method per call
can be added up: the advantage of `group+anchor_state` is the advantage of `group` plus
`step_weight` times the advantage of `anchor_state`.

Begin in `steps.py`, which has the inputs and the options; the methods are in `methods/`.
`discount.py`, `compare.py` and `value.py` are what several methods compute.
"""

from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.methods import METHODS
from otel_lightning.learner.credit.steps import (
    Method,
    Options,
    Steps,
    lengths,
    sums,
    tasks_of_rollouts,
    ungrouped,
)
from otel_lightning.learner.errors import DataError

__all__ = [
    "METHODS",
    "Method",
    "Options",
    "Steps",
    "advantages",
    "compares",
    "ungrouped",
    "validate",
]

ROUNDING = 1e-12
"""Advantages smaller than this share of the task's rewards are rounding errors. A sum over a
thousand calls has a relative error of about 1e-13."""


def advantages(credit: str, steps: Steps, options: Options) -> Floats:
    """Turn the rewards of calls into advantages.

    An advantage that differs from 0 only by rounding becomes 0, so that a tie never counts as an
    improvement.

    Args:
        credit: A method, or a method per rollout and a method per call joined by `+`.
        steps: The calls, with all rollouts of each task.
        options: The settings of the methods.

    Returns:
        The advantage of each call, shape [N]. If `length` is `rollout`, it is divided by the
        number of calls in the rollout, so that long and short rollouts have equal weight.

    Raises:
        DataError: If a method is unknown, or two methods cannot be added up.

    Example:
        >>> one, none = np.array([0.0, 1.0]), np.zeros(2)
        >>> number = np.zeros(2, dtype=np.int64)
        >>> steps = Steps(one, one, none, number, number, number, none > 0)
        >>> advantages("return_to_go", steps, Options(gamma=0.5)).tolist()
        [0.5, 1.0]
    """
    methods = validate(credit)
    if not len(steps.rewards):
        return np.zeros(0)
    result = _without_rounding(methods[0], steps, options)
    for method in methods[1:]:
        added = options.step_weight * _without_rounding(method, steps, options)
        # The sum of two advantages can be a rounding error although neither of them is one: they
        # may cancel, as in (0.1 + 0.2) + (-0.3).
        result = _zeroed(result + added, np.abs(result) + np.abs(added))
    return result if options.length == "none" else result / lengths(steps)[steps.rollouts]


def _without_rounding(method: Method, steps: Steps, options: Options) -> Floats:
    """Compute a method's advantages, with rounding errors set to 0.

    An advantage is a rounding error if it is tiny beside the largest sum of absolute rewards in
    one rollout of the task. Advantages that were divided by a standard deviation have no unit, so
    they are compared with at most 1.
    """
    # An outcome is part of the reward of its call, where it may cancel the rest. So both are added.
    earned = np.abs(steps.rewards) + np.abs(steps.outcomes)
    earned = earned + np.abs(options.tool_reward * steps.tools)
    largest = np.zeros(steps.tasks.max() + 1)  # [K]
    np.maximum.at(largest, tasks_of_rollouts(steps), sums(earned, steps.rollouts))
    if method.divides and options.scale == "std":
        largest = np.minimum(largest, 1.0)
    return _zeroed(method(steps, options), largest[steps.tasks])


def _zeroed(advantages: Floats, magnitudes: Floats) -> Floats:
    return np.where(np.abs(advantages) <= ROUNDING * magnitudes, 0.0, advantages)


def validate(credit: str) -> Sequence[Method]:
    """Look up the methods that a credit names.

    Args:
        credit: A method, or a method per rollout and a method per call joined by `+`.

    Returns:
        One method, or two.

    Raises:
        DataError: If a method is unknown, or two methods cannot be added up.
    """
    names = credit.split("+")
    for name in names:
        if name not in METHODS:
            close = get_close_matches(name, METHODS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise DataError(f"Unknown credit method '{name}'. Known: {', '.join(METHODS)}.{hint}")
    methods = [METHODS[name] for name in names]
    if len(methods) > 1 and [method.per_rollout for method in methods] != [True, False]:
        raise DataError(
            f"Credit '{credit}' cannot be added up. Name one of {_names(per_rollout=True)}, "
            f"then '+', then one of {_names(per_rollout=False)}: for example 'group+anchor_state'."
        )
    return methods


def compares(credit: str, options: Options) -> bool:
    """Return whether a credit compares the rollouts of a task with each other.

    If it does, the only rollout of a task has the advantage 0, so learning ignores it.

    Args:
        credit: A method, or a method per rollout and a method per call joined by `+`.
        options: The settings of the methods.
    """
    return any(method.is_comparing(options) for method in validate(credit))


def _names(*, per_rollout: bool) -> str:
    return ", ".join(name for name, method in METHODS.items() if method.per_rollout == per_rollout)
