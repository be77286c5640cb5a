"""From rewards to advantages: one pure function a file, all with one signature.

Each takes `(steps, options)` and returns one advantage a call. A method of rollouts and a method
of steps can be added up: `group+anchor_state` is the first plus `step_weight` times the second.
"""

from difflib import get_close_matches

import numpy as np

from otel_lightning.learner.credit.anchor_state import anchor_state
from otel_lightning.learner.credit.gae import gae
from otel_lightning.learner.credit.group import group
from otel_lightning.learner.credit.identical import identical
from otel_lightning.learner.credit.intermediate import intermediate
from otel_lightning.learner.credit.return_to_go import return_to_go
from otel_lightning.learner.credit.steps import (
    Floats,
    Method,
    Options,
    Steps,
    lengths,
    ungrouped,
)
from otel_lightning.learner.credit.tool_outcome import tool_outcome
from otel_lightning.learner.errors import DataError

ROLLOUT_METHODS: dict[str, Method] = {"identical": identical, "group": group}
"""One advantage for all calls of a rollout."""

STEP_METHODS: dict[str, Method] = {
    "return_to_go": return_to_go,
    "intermediate": intermediate,
    "gae": gae,
    "anchor_state": anchor_state,
    "tool_outcome": tool_outcome,
}
"""An advantage for each call."""

METHODS = ROLLOUT_METHODS | STEP_METHODS

__all__ = ["METHODS", "Options", "Steps", "advantages", "compares", "ungrouped", "validate"]


def advantages(credit: str, steps: Steps, options: Options) -> Floats:
    """Turn the rewards of calls into advantages.

    Args:
        credit: A method, or a method of rollouts + a method of steps.
        steps: The calls; all rollouts of a task must be there.
        options: What the methods leave open.

    Returns:
        The advantage of each call, shape [N]. With `length` rollout it is divided by the number
        of calls of its rollout, so a rollout weighs the same however many calls it took.

    Raises:
        DataError: If a method is not known.

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
    result = methods[0](steps, options)
    for method in methods[1:]:
        result = result + options.step_weight * method(steps, options)
    return result if options.length == "none" else result / lengths(steps)[steps.rollouts]


def validate(credit: str) -> list[Method]:
    """Find the methods that a credit names.

    Args:
        credit: A method, or a method of rollouts + a method of steps.

    Returns:
        One method, or two.

    Raises:
        DataError: If a method is not known, or two of them do not go together.
    """
    names = credit.split("+")
    for name in names:
        if name not in METHODS:
            close = get_close_matches(name, METHODS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise DataError(f"Unknown credit method '{name}'. Known: {', '.join(METHODS)}.{hint}")
    pair = len(names) == 2 and names[0] in ROLLOUT_METHODS and names[1] in STEP_METHODS  # noqa: PLR2004
    if len(names) > 1 and not pair:
        raise DataError(
            f"Credit '{credit}' cannot be added up. Name one of {', '.join(ROLLOUT_METHODS)}, "
            f"then '+', then one of {', '.join(STEP_METHODS)}: for example 'group+anchor_state'."
        )
    return [METHODS[name] for name in names]


def compares(credit: str, options: Options) -> bool:
    """Say whether a credit needs other rollouts of the same task.

    Rollouts that `ungrouped` finds then have the advantage 0: they teach nothing.

    Args:
        credit: A method, or a method of rollouts + a method of steps.
        options: Where `gae` has its value from.

    Returns:
        Whether it compares rollouts.
    """
    by_value = {"gae"} if options.value == "leave_one_out" else set()
    return not by_value.union({"group", "anchor_state"}).isdisjoint(credit.split("+"))
