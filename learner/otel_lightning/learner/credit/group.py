"""The outcome against the other rollouts of the same task."""

import numpy as np
from numpy.typing import NDArray


def group(
    rewards: NDArray[np.float64],
    rollouts: NDArray[np.int64],
    groups: NDArray[np.int64],
    gamma: float,  # noqa: ARG001 - one signature for all methods
) -> NDArray[np.float64]:
    """Compare each rollout's outcome with the mean of its task's other rollouts.

    A[i] = R[i] - mean of R[j] over the other rollouts j of the task, for every call of i. The
    baseline leaves i out, so it is unbiased; a rollout alone in its task gets 0.

    Args:
        rewards: Reward at each call, shape [N].
        rollouts: Number of each call's rollout, from 0 without gaps, shape [N].
        groups: Number of each call's task, from 0, shape [N].
        gamma: Not used.

    Returns:
        The advantage of each call, shape [N].

    Source:
        Ahmadian et al., Back to Basics (2024), for the baseline (RLOO); Shao et al.,
        DeepSeekMath (2024), for the group of one task (GRPO).

    Example:
        >>> one_task = np.zeros(3, int)
        >>> group(np.array([1.0, 0.0, 0.0]), np.array([0, 1, 2]), one_task, 1.0).tolist()
        [1.0, -0.5, -0.5]
    """
    outcome = np.bincount(rollouts, weights=rewards)  # [R]
    task = np.zeros(len(outcome), dtype=np.int64)
    task[rollouts] = groups
    size, total = np.bincount(task)[task], np.bincount(task, weights=outcome)[task]  # [R]
    others = (total - outcome) / np.maximum(size - 1, 1)
    return np.where(size > 1, outcome - others, 0.0)[rollouts]
