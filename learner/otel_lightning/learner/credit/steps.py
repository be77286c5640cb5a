"""The inputs of credit methods, their options, and the properties that a method declares."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from otel_lightning.learner.arrays import Booleans, Floats, Integers
from otel_lightning.learner.errors import DataError

Baseline = Literal["leave_one_out", "mean"]
Scale = Literal["none", "std"]
Value = Literal["leave_one_out", "fitted"]
Length = Literal["none", "rollout"]

CHOICES = {"baseline": Baseline, "scale": Scale, "value": Value, "length": Length}
SHARES = ("gamma", "lam")
NUMBERS = ("step_weight", "tool_reward")


@dataclass(frozen=True, slots=True)
class Steps:
    """All calls of some tasks, in the order of rollout and step, as arrays of shape [N]."""

    rewards: Floats
    """Reward of each call, the outcome included."""
    outcomes: Floats
    """Part of the reward that judges the whole rollout; 0 except at the last call of a rollout."""
    tools: Floats
    """Successful minus failed executions of the tools that the call requested, as a count."""
    rollouts: Integers
    """Number of the rollout of each call, from 0 without gaps."""
    tasks: Integers
    """Number of the task of each call, from 0."""
    states: Integers
    """Number of the observation of each call, from 0; equal observations have equal numbers."""
    truncated: Booleans
    """Whether the rollout was truncated after this call."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of the credit methods; each method reads the ones it needs.

    Raises:
        DataError: If a value is not allowed.
    """

    gamma: float = 1.0
    """Discount per call, in [0, 1]. Not per second."""
    lam: float = 0.95
    """λ of `gae`, in [0, 1]: 0 trusts the value, 1 trusts the return."""
    value: Value = "leave_one_out"
    """How `gae` estimates the value of a step: from the task's other rollouts, or by a fit."""
    baseline: Baseline = "leave_one_out"
    """Baseline of a rollout: the mean of the others in its group, or of the whole group."""
    scale: Scale = "none"
    """Divisor of the advantages of a group: none, or the standard deviation of the group."""
    step_weight: float = 1.0
    """ω: weight of the second method in a sum of two."""
    tool_reward: float = 0.1
    """Reward of `tool_outcome` for a successful tool execution; a failure costs as much."""
    length: Length = "none"
    """Whether each call has weight 1, or all calls of a rollout have weight 1 together."""

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
    """A credit method: its function, its properties and the inputs it needs."""

    function: Callable[[Steps, Options], Floats]
    """Takes calls and settings, and returns one advantage per call, shape [N]."""
    per_rollout: bool = False
    """Whether all calls of a rollout get the same advantage."""
    compares: bool | Callable[[Options], bool] = False
    """Whether it compares the rollouts of a task, so that the only rollout of a task gets 0."""
    divides: bool = False
    """Whether it divides by a standard deviation under `scale` std, so that it has no unit."""
    needs_tools: bool = False
    """Whether it reads `Steps.tools`. They are all 0 if no chosen method needs them."""
    needs_states: bool = False
    """Whether it reads `Steps.states`. They are all equal if no chosen method needs them."""

    def __call__(self, steps: Steps, options: Options) -> Floats:
        """Compute the advantage of each call, shape [N]."""
        return self.function(steps, options)

    def is_comparing(self, options: Options) -> bool:
        """Return whether the method compares rollouts under these settings."""
        return self.compares(options) if callable(self.compares) else self.compares


def first_of(numbers: Integers) -> Integers:
    """Return the index at which each run of equal numbers begins.

    Example:
        >>> first_of(np.array([0, 0, 1, 2, 2])).tolist()
        [0, 2, 3]
    """
    # The prepended number differs from the first one, so that the first run begins at index 0. A
    # slice keeps an empty array valid.
    return np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))


def sums(values: Floats, groups: Integers, size: int = 0) -> Floats:
    """Add up the values of each group; the result has at least `size` groups.

    Example:
        >>> sums(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0])).tolist()
        [5.0, 0.0, 2.0]
    """
    return np.bincount(groups, weights=values, minlength=size).astype(np.float64, copy=False)


def lengths(steps: Steps) -> Integers:
    """Count the calls of each rollout, shape [R]."""
    return np.bincount(steps.rollouts)


def tasks_of_rollouts(steps: Steps) -> Integers:
    """Return the task number of each rollout, shape [R]."""
    return steps.tasks[first_of(steps.rollouts)]


def ungrouped(steps: Steps) -> Booleans:
    """Find the calls whose rollout is the only one of its task.

    Args:
        steps: The calls.

    Returns:
        Whether the call's task has just one rollout, shape [N].
    """
    rollouts = np.bincount(tasks_of_rollouts(steps))
    alone: Booleans = rollouts == 1  # [K]
    return alone[steps.tasks]
