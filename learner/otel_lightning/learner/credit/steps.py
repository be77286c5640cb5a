"""The arrays that credit methods take, their options, and what a method declares about itself."""

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
    """Reward of each call, the outcome included."""
    outcomes: Floats
    """The part of the reward that judges the whole rollout: 0 except at a rollout's last call."""
    tools: Floats
    """Successful minus failed executions of the tools that the call requested."""
    rollouts: Integers
    """Number of the call's rollout, from 0 without gaps."""
    tasks: Integers
    """Number of the call's task, from 0."""
    states: Integers
    """Number of the call's observation, from 0: equal observations have equal numbers."""
    truncated: Booleans
    """Whether the rollout was truncated after this call."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of the credit methods; each method reads those that it needs.

    Raises:
        DataError: If a value is not among the allowed ones.
    """

    gamma: float = 1.0
    """Discount per call, in [0, 1]. Not per second."""
    lam: float = 0.95
    """λ of `gae`, in [0, 1]: 0 trusts the value, 1 trusts the return."""
    value: Value = "leave_one_out"
    """How `gae` estimates the value of a step: from the task's other rollouts, or by a fit."""
    baseline: Baseline = "leave_one_out"
    """What a rollout is compared with: the mean of the others in its group, or of all."""
    scale: Scale = "none"
    """Divisor of a group's advantages: none, or the group's standard deviation."""
    step_weight: float = 1.0
    """ω: weight of the second of two added methods."""
    tool_reward: float = 0.1
    """Reward of `tool_outcome` for a successful tool execution; a failure costs as much."""
    length: Length = "none"
    """Whether each call weighs 1, or the calls of a rollout weigh 1 together."""

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


@dataclass(frozen=True, slots=True)
class Method:
    """A credit method: its function, and what has to be there for it."""

    function: Callable[[Steps, Options], Floats]
    """From calls and settings to one advantage per call, shape [N]."""
    per_rollout: bool = False
    """Whether all calls of a rollout get one advantage; else each call gets its own."""
    compares: bool | Callable[[Options], bool] = False
    """Whether it compares the rollouts of a task, so a rollout alone in its task gets 0."""
    divides: bool = False
    """Whether it divides by a standard deviation under `scale` std: then it has no unit."""
    needs_tools: bool = False
    """Whether it reads `Steps.tools`; they are 0 where no method of the credit needs them."""
    needs_states: bool = False
    """Whether it reads `Steps.states`; all are equal where no method of the credit needs them."""

    def __call__(self, steps: Steps, options: Options) -> Floats:
        """Compute the advantage of each call, shape [N]."""
        return self.function(steps, options)

    def is_comparing(self, options: Options) -> bool:
        """Say whether it compares rollouts under these settings."""
        return self.compares(options) if callable(self.compares) else self.compares


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
