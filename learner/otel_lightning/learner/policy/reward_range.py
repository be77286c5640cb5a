"""The range of the rewards: given by the user, or the logged range if it is reliable."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.errors import DataError

Range = tuple[float, float]

HEAVY = 9.0
"""Threshold of the kurtosis for heavy tails: that of the exponential distribution (normal: 3)."""
DRAWS = 150
"""Number of rewards that an arm needs. An outcome with 3 % probability then appears at least once
with 99 % probability: 0.97^150 = 0.01."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """Range of the rewards, and reasons why it is not reliable."""

    range: Range
    assumed: bool
    refusals: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name the range and where it comes from."""
        low, high = self.range
        origin = "as logged; give the true one with --reward-range" if self.assumed else "as given"
        return f"Rewards are in [{low:g}, {high:g}] ({origin})."


def reward_range(
    rewards: NDArray[np.float64], given: Range | None, gaining: Mapping[str, int]
) -> Rewards:
    """Find the range of rewards for the bounds of the gain.

    A bound cannot know a loss that was never logged. Without a given range, the logged range is
    reliable only if tails are not heavy, and if each arm that gains traffic has enough rewards to
    show losses that are not very rare. Rewards that are all 0 or 1 have the range [0, 1].

    Args:
        rewards: All logged rewards, shape [N].
        given: The user's range, if any.
        gaining: Arms that get more traffic than now, with their number of rewards.

    Raises:
        DataError: If a reward is outside the given range.
    """
    low, high = float(rewards.min()), float(rewards.max())
    if given is not None:
        if low < given[0] or high > given[1]:
            outside = low if low < given[0] else high
            raise DataError(
                f"A reward of {outside:g} was logged, which is outside --reward-range "
                f"{given[0]:g},{given[1]:g}. Widen the range, or choose a reward with --reward."
            )
        return Rewards(given, assumed=False)
    # The first thousand decide quickly for rewards that are not 0 or 1; a million rewards are
    # compared only if they may be.
    if set(np.unique(rewards[:1000])) <= {0.0, 1.0} and bool(np.isin(rewards, (0.0, 1.0)).all()):
        return Rewards((0.0, 1.0), assumed=True)
    return Rewards((low, high), assumed=True, refusals=tuple(_doubts(rewards, gaining)))


def _doubts(rewards: NDArray[np.float64], gaining: Mapping[str, int]) -> list[str]:
    remedy = "give the least and the greatest possible reward with --reward-range LOW,HIGH"
    deviations = rewards - rewards.mean()
    variance = float((deviations**2).mean())
    kurtosis = float((deviations**4).mean()) / variance**2 if variance > 0 else 0.0
    doubts = []
    if kurtosis > HEAVY:
        doubts.append(
            f"the rewards have heavy tails (kurtosis {kurtosis:.1f}; {HEAVY:.0f} is the limit), so "
            f"rare losses may not have been drawn: {remedy}"
        )
    thin = {arm: count for arm, count in gaining.items() if count < DRAWS}
    if thin:
        arm, count = min(thin.items(), key=lambda item: item[1])
        doubts.append(
            f"arm '{arm}' would get more traffic and has only {count} rewards, too few to show a "
            f"rare loss ({DRAWS} needed): {remedy}"
        )
    return doubts
