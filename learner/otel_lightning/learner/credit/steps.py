"""What credit methods take: the calls of whole rollouts as arrays, and how to weigh them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.errors import DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

Baseline = Literal["leave_one_out", "mean"]
Scale = Literal["none", "std"]
Value = Literal["leave_one_out", "fitted"]
Length = Literal["none", "rollout"]

CHOICES = {"baseline": Baseline, "scale": Scale, "value": Value, "length": Length}
SHARES = ("gamma", "lam")
NUMBERS = ("step_weight", "tool_reward")


@dataclass(frozen=True, slots=True)
class Steps:
    """Calls in the order of rollout and step, with every rollout of their tasks; arrays [N]."""

    rewards: Floats
    """Everything that was earned at the call, the outcome included."""
    outcomes: Floats
    """The part of it that judges the whole rollout: 0 except at a rollout's last call."""
    tools: Floats
    """Successes minus failures of the tools that the call asked for."""
    rollouts: Integers
    """Number of its rollout, from 0 without gaps."""
    tasks: Integers
    """Number of its task, from 0."""
    states: Integers
    """Number of what the call saw: equal observations have equal numbers, from 0."""
    truncated: Booleans
    """Whether the rollout was cut off after this call."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the methods leave open; each reads what it needs.

    Raises:
        DataError: If a value is not among the allowed ones.
    """

    gamma: float = 1.0
    """Discount per call, in [0, 1]. Not per second."""
    lam: float = 0.95
    """λ of `gae`, in [0, 1]: 0 trusts the value, 1 trusts the return."""
    value: Value = "leave_one_out"
    """Where `gae` has its value from: the task's other rollouts, or a fit per task."""
    baseline: Baseline = "leave_one_out"
    """What groups are compared with: the mean of the others, or of all."""
    scale: Scale = "none"
    """What groups are divided by: nothing, or their standard deviation."""
    step_weight: float = 1.0
    """ω: how much the second method of a composition counts."""
    tool_reward: float = 0.1
    """What `tool_outcome` gives for a tool's success and takes for its failure."""
    length: Length = "none"
    """Whether a call counts as one, or the calls of a rollout together."""

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in get_args(allowed):
                known = ", ".join(get_args(allowed))
                raise DataError(f"Unknown {name} '{getattr(self, name)}'. Known: {known}.")
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise DataError(f"{name} is {getattr(self, name)}; it must be in [0, 1].")
        for name in NUMBERS:
            if not np.isfinite(getattr(self, name)):
                raise DataError(f"{name} is {getattr(self, name)}; it must be a finite number.")


Method = Callable[[Steps, Options], Floats]


def first_of(numbers: Integers) -> Integers:
    """Find where each run of equal numbers begins.

    Example:
        >>> first_of(np.array([0, 0, 1, 2, 2])).tolist()
        [0, 2, 3]
    """
    return np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))


def sums(values: Floats, groups: Integers, size: int = 0) -> Floats:
    """Add up the values of each group, from 0 to the last that is there, or to `size`.

    Example:
        >>> sums(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0])).tolist()
        [5.0, 0.0, 2.0]
    """
    return np.bincount(groups, weights=values, minlength=size).astype(np.float64, copy=False)


def lengths(steps: Steps) -> Integers:
    """Count the calls of each rollout, shape [R]."""
    return np.bincount(steps.rollouts)


def tasks_of_rollouts(steps: Steps) -> Integers:
    """Name the task of each rollout, shape [R]."""
    return steps.tasks[first_of(steps.rollouts)]


def ungrouped(steps: Steps) -> Booleans:
    """Find the calls of rollouts that are alone in their task.

    Args:
        steps: The calls.

    Returns:
        Whether no other rollout of the task is there, shape [N].
    """
    rollouts = np.bincount(tasks_of_rollouts(steps))
    alone: Booleans = rollouts == 1  # [K]
    return alone[steps.tasks]
