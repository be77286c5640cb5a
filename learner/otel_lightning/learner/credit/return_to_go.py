"""The discounted reward from here on."""

import numpy as np
from numpy.typing import NDArray


def return_to_go(
    rewards: NDArray[np.float64],
    rollouts: NDArray[np.int64],
    groups: NDArray[np.int64],  # noqa: ARG001 - one signature for all methods
    gamma: float,
) -> NDArray[np.float64]:
    """Compute the discounted return from each call to the end of its rollout.

    G[t] = r[t] + gamma * G[t+1], with G[T] = 0.

    Args:
        rewards: Reward at each call, in the order of rollout and step, shape [N].
        rollouts: Number of each call's rollout, shape [N].
        groups: Not used.
        gamma: Discount per call, in [0, 1]. Not per second.

    Returns:
        The return of each call, shape [N].

    Source:
        Sutton & Barto, Reinforcement Learning (2nd ed.), eq. 3.9.

    Example:
        >>> same = np.zeros(3, int)
        >>> return_to_go(np.array([0.0, 0.0, 1.0]), same, same, 0.5).tolist()
        [0.25, 0.5, 1.0]
    """
    returns = rewards.astype(np.float64)
    for t in range(len(returns) - 2, -1, -1):
        if rollouts[t] == rollouts[t + 1]:
            returns[t] += gamma * returns[t + 1]
    return returns
