"""The range of the rewards: given by the user, or 0 to 1 if all rewards are 0 or 1."""

from dataclasses import dataclass

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.errors import DataError

Range = tuple[float, float]

ROUNDING = 1e-12
"""Largest error of a sum of a few thousand rewards, as a share of the end of their range."""
OPTIONS = ("--failed-reward", "--reward-range")

UNKNOWN = (
    "the rewards are not all 0 or 1, so a rare loss that was not logged yet could be of any size: "
    "give the least and the greatest possible reward with --reward-range LOW,HIGH"
)


class OutsideRangeError(DataError):
    """A reward is outside of the range that the user gave."""

    def __init__(self, reward: float, given: Range) -> None:
        # All digits: two numbers that differ must not look the same.
        logged, low, high = (f"{value:.15g}" for value in (reward, *given))
        super().__init__(
            f"A reward of {logged} was logged, which is outside --reward-range {low},{high}. "
            "Widen the range, or choose a reward with --reward."
        )
        self.in_a_loop = (
            f"A reward of {logged} was logged, which is outside reward_range = "
            f"[{low}, {high}] of [gate] in the loop's file. Widen the range there, then start "
            "the loop again: it goes on from here."
        )
        """The same message for a loop, which has no options for it."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """Range of the rewards, and reasons why it is not reliable."""

    range: Range
    assumed: bool = False
    """Whether the user gave no range."""
    refusals: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        """Whether all rewards are 0 or 1."""
        return self.assumed and not self.refusals

    def __str__(self) -> str:
        """Name the range and where it comes from."""
        low, high = (f"{end:g}" for end in self.range)
        if low == high:
            low, high = (f"{end:.15g}" for end in self.range)
        origin = "as logged; give the true one with --reward-range" if self.assumed else "as given"
        return f"Rewards are in [{low}, {high}] ({origin})."


def reward_range(rewards: Floats, given: Range | None) -> Rewards:
    """Find the range of rewards for the bounds of the gain.

    A bound cannot know a loss that was never logged. However many rewards an arm has, a loss that
    is a little rarer may be missing from them, so the logged range is not reliable. Rewards that
    are all 0 or 1 have the range [0, 1].

    Args:
        rewards: All logged rewards, shape [N].
        given: The user's range, if any.

    Raises:
        OutsideRangeError: If a reward is outside the given range.
    """
    if not len(rewards):
        return Rewards(given or (0.0, 1.0), assumed=given is None)
    low, high = float(rewards.min()), float(rewards.max())
    if given is not None:
        # A sum of rewards may exceed the range by rounding, such as 0.1 + 0.2 exceeds 0.3.
        rounding = ROUNDING * max(map(abs, given))
        if low < given[0] - rounding or high > given[1] + rounding:
            outside = low if low < given[0] - rounding else high
            raise OutsideRangeError(outside, given)
        return Rewards(given)
    # The first thousand decide quickly for rewards that are not 0 or 1; a million rewards are
    # compared only if they may be.
    if set(np.unique(rewards[:1000])) <= {0.0, 1.0} and bool(np.isin(rewards, (0.0, 1.0)).all()):
        return Rewards((0.0, 1.0), assumed=True)
    return Rewards((low, high), assumed=True, refusals=(UNKNOWN,))


def check_failed_reward(
    failed_reward: float | None, given: Range | None, names: tuple[str, str] = OPTIONS
) -> None:
    """Refuse a reward of failed rollouts that no gate would judge, before any rollout is run.

    Args:
        failed_reward: The reward of rollouts that failed or timed out, if any is set.
        given: The user's range of the rewards, if any.
        names: The settings of both, as the user writes them.

    Raises:
        DataError: If the reward is neither 0 nor 1 and there is no range, or is outside of it.
    """
    if failed_reward is None:
        return
    name, of_range = names
    if given is None and failed_reward not in {0.0, 1.0}:
        raise DataError(
            f"{name} is {failed_reward:g}, which is neither 0 nor 1, so the gate would refuse "
            "every candidate: give the least and the greatest possible reward with "
            f"{of_range}, or a {name} of 0."
        )
    if given is not None and not given[0] <= failed_reward <= given[1]:
        raise DataError(
            f"{name} is {failed_reward:g}, which is outside {of_range}, from {given[0]:g} to "
            f"{given[1]:g}. Widen the range, or give another {name}."
        )
