"""The outcome for every call."""

import numpy as np
from numpy.typing import NDArray


def identical(
    rewards: NDArray[np.float64],
    rollouts: NDArray[np.int64],
    groups: NDArray[np.int64],  # noqa: ARG001 - one signature for all methods
    gamma: float,  # noqa: ARG001
) -> NDArray[np.float64]:
    """Give every call of a rollout the rollout's whole outcome.

    Args:
        rewards: Reward at each call, shape [N].
        rollouts: Number of each call's rollout, from 0, shape [N].
        groups: Not used.
        gamma: Not used.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Luo et al., Agent Lightning (2025): LightningRL's credit assignment.

    Example:
        >>> rewards, rollouts = np.array([0.0, 1.0, 0.0]), np.array([0, 0, 1])
        >>> identical(rewards, rollouts, np.zeros(3, int), 1.0).tolist()
        [1.0, 1.0, 0.0]
    """
    outcome = np.bincount(rollouts, weights=rewards).astype(np.float64)  # [R]
    return outcome[rollouts]
