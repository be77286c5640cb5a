"""A model of the reward that a task earns on average, for the gate by logs.

It is a ridge regression on the tokens of a rollout's first prompt, fitted to the training tasks.
The gate judges by other tasks, so the model has not seen the rewards that it explains there. Where
the agent tried a held-out task several times, the other rollouts of the task count as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.weights.examples import Example

WIDTH = 256
"""Number of features; tokens and pairs of tokens are hashed into them."""
PRIOR = 2.0
"""The model's prediction counts as this many rollouts of a task."""
PAIR, MIX = np.uint64(1_000_003), np.uint64(0x9E3779B97F4A7C15)
"""Multipliers of the hash; products wrap around at 64 bits."""
MIN_ROLLOUTS = 20
"""With fewer training rollouts, the model predicts the middle of the range of the rewards."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Rollouts with their first prompts; arrays have shape [N]."""

    prompts: Sequence[tuple[int, ...]]
    rewards: Floats
    """Reward of each rollout."""
    tasks: Integers
    began: Integers | None = None
    """Time at which each rollout began, in nanoseconds; None if one of them is not known."""


def rollouts_of(examples: Sequence[Example]) -> Rollouts:
    """Return the rollouts of completions, in the order of the sorted ids."""
    _, first = np.unique([e.rollout_id for e in examples], return_index=True)
    _, task = np.unique([e.task for e in examples], return_inverse=True)
    began = [examples[i].began for i in first]
    return Rollouts(
        [examples[i].prompt for i in first],
        np.array([examples[i].outcome for i in first], dtype=np.float64),
        task[first].astype(np.int64),
        None if None in began else np.array(began, dtype=np.int64),
    )


def expected_rewards(
    history: Rollouts, judged: Rollouts, reward_range: tuple[float, float]
) -> Floats:
    """Predict the reward of each judged rollout without looking at its own reward.

    c[i] = (PRIOR * V(x) + sum of R[j]) / (PRIOR + n - 1), over the other rollouts j of the task,
    with V the regression on the first prompt x.

    Args:
        history: Rollouts of the training tasks.
        judged: Rollouts of the held-out tasks.
        reward_range: Least and greatest possible reward; predictions stay inside.

    Returns:
        Shape [N] of the judged rollouts.
    """
    low, high = reward_range
    if len(history.rewards) < MIN_ROLLOUTS:
        predicted = np.full(len(judged.rewards), (low + high) / 2)
    else:
        features, wanted = _features(history.prompts), _features(judged.prompts)
        mean = history.rewards.mean()
        # With as much weight on the penalty as on the rows, rare tokens move the prediction little.
        penalty = np.eye(WIDTH) * max(1.0, len(features) / WIDTH)
        weights = np.linalg.solve(
            features.T @ features + penalty, features.T @ (history.rewards - mean)
        )
        predicted = np.clip(mean + wanted @ weights, low, high)
    # The rollout's own reward is subtracted: the correction needs a prediction independent of it.
    count = np.bincount(judged.tasks)[judged.tasks]
    total = np.bincount(judged.tasks, judged.rewards)[judged.tasks]
    return np.asarray(
        (PRIOR * predicted + total - judged.rewards) / (PRIOR + count - 1), dtype=np.float64
    )


def _features(prompts: Sequence[tuple[int, ...]]) -> Floats:
    """Hash which tokens and pairs of tokens a prompt has, shape [N, WIDTH]; rows have length 1."""
    features = np.zeros((len(prompts), WIDTH))
    for row, prompt in zip(features, prompts, strict=True):
        ids = np.array(prompt, dtype=np.uint64)
        # A pair is a number above most token ids, so that it seldom equals a single token.
        pairs = ids[:-1] * PAIR + ids[1:] + np.uint64(1)
        mixed = np.array(list({*ids.tolist(), *pairs.tolist()}), dtype=np.uint64)
        mixed = mixed * MIX >> np.uint64(40)
        # The hashing trick with random signs: collisions then cancel on average (Weinberger et al.,
        # Feature hashing for large scale multitask learning, 2009). The sign is a bit above the
        # index.
        sign = np.where(mixed & np.uint64(WIDTH), 1.0, -1.0)
        row[:] = np.bincount((mixed % np.uint64(WIDTH)).astype(np.int64), sign, WIDTH)
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(length, 1e-12), dtype=np.float64)
