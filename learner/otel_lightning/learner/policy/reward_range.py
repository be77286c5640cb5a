"""The range of the rewards: given, or taken from the logged ones where that can be trusted."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.errors import DataError

Range = tuple[float, float]

HEAVY = 9.0
"""Kurtosis above which tails are heavy: that of the exponential distribution; the normal has 3."""
DRAWS = 150
"""Draws of an arm that show an outcome of 3 % of them with 99 % probability: 0.97^150 = 0.01."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """Range of the rewards, and what speaks against trusting it."""

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
    """Find the range that bounds of the gain may rely on.

    A bound cannot see a loss that was not drawn. Without a given range, the logged range stands
    for it only if tails are not heavy and each arm that gains traffic was drawn often enough to
    show losses that are not very rare. Rewards that are all 0 or 1 are taken for successes.

    Args:
        rewards: All logged rewards, shape [N].
        given: The user's range, if any.
        gaining: Arms that get more traffic than now, and how many rewards each has.

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
