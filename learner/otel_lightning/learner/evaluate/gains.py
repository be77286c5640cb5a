"""The gain of a new policy over the live one, task by task, from rollouts of a third policy.

Both policies are evaluated on the same rollouts, so what they share cancels. Rollouts of one task
resemble each other, so a task is one observation. Within a task, rewards are compared with a
centre that is the same for both policies: contexts that drew more weight then add nothing.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.evaluate.betting import Scores
from otel_lightning.learner.evaluate.off_policy import Logged

Floats = NDArray[np.float64]

LEAST_TASKS = 10
"""Tasks with several rollouts that a comparison within tasks needs."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Held-out rollouts as two policies weigh them; arrays of shape [N]."""

    new: Logged
    live: Logged
    tasks: NDArray[np.int64]
    """Number of each rollout's task."""
    clip: float | None = None
    """Largest importance weight of the new policy; None clips nothing."""

    @classmethod
    def with_behavior(
        cls, new: Logged, tasks: NDArray[np.int64], clip: float | None = None
    ) -> "Compared":
        """Compare with the policy that logged the rollouts: its weights are 1."""
        ones = np.ones_like(new.weights)
        live = Logged(new.rewards, ones, new.modelled_taken, new.modelled_taken)
        if not new.modelled_taken.any():
            live = Logged.without_model(new.rewards, ones)
        return cls(new, live, tasks, clip)

    def swapped(self) -> "Compared":
        """Take the live policy for the new one, and the other way round."""
        clipped = replace(self.new, weights=self.weights)
        return Compared(self.live, clipped, self.tasks)

    @property
    def weights(self) -> Floats:
        """The new policy's weights, at most `clip`."""
        return self.new.weights if self.clip is None else np.minimum(self.new.weights, self.clip)

    @property
    def clipped(self) -> bool:
        """Whether a weight is above the largest one allowed."""
        return self.clip is not None and bool((self.new.weights > self.clip).any())

    @property
    def modelled(self) -> bool:
        """Whether a model of the reward is there."""
        return bool(self.new.modelled_taken.any())


def per_task(values: Floats, tasks: NDArray[np.int64]) -> Floats:
    """Average values of shape [N] within each task, shape [T]."""
    _, number = np.unique(tasks, return_inverse=True)
    counts = np.bincount(number)
    return np.asarray(np.bincount(number, values) / counts, dtype=np.float64)


def from_limits(compared: Compared, reward_range: tuple[float, float]) -> Scores:
    """Score each task by w_new * (r - low) + w_live * (high - r) - (high - low).

    The first part bounds the new policy's value from below, the second the live one's from above,
    also where one of them does what was never logged: that counts as the worst of the new policy
    and the best of the live one. No score is below low - high, whatever the weights are. The
    weights of each task must average 1, or tasks gain from each other.

    Args:
        compared: The rollouts to judge by.
        reward_range: The least and the greatest possible reward.
    """
    low, high = reward_range
    rewards, live = compared.new.rewards, compared.live.weights
    scores = compared.weights * (rewards - low) + live * (high - rewards) - (high - low)
    return Scores(per_task(scores, compared.tasks), low - high)


def centred(compared: Compared, logged: Compared, reward_range: tuple[float, float]) -> Scores:
    """Score each task by (w_new - w_live) * (r - c) plus the modelled gain: least variance.

    With a model, c is its prediction and this is the doubly robust estimate of the gain. Without
    one, c is the mean reward of the task's other rollouts; a rollout that is alone in its task is
    compared with the middle of the range.

    Args:
        compared: The rollouts to judge by.
        logged: All rollouts that the policies can be compared on, for the least possible score.
        reward_range: The least and the greatest possible reward.

    Source:
        Dudík, Langford & Li, Doubly robust policy evaluation and learning (2011); Kool, van Hoof
        & Welling, Buy 4 REINFORCE samples, get a baseline for free (2019), for the other mean.
    """
    difference = compared.weights - compared.live.weights
    if compared.modelled:
        centre = compared.new.modelled_taken
    else:
        centre = mean_of_others(compared.new.rewards, compared.tasks, sum(reward_range) / 2)
    scores = difference * (compared.new.rewards - centre) + _modelled_gain(compared)
    return Scores(per_task(scores, compared.tasks), _least_centred(logged, reward_range))


def within_tasks(compared: Compared, reward_range: tuple[float, float]) -> Scores | None:
    """Score each task by its self-normalized value under each policy: w r / sum of w, within it.

    A score cannot leave the range of the rewards, whatever the weights are, and a task that drew
    more weight than another gains nothing by it. With few rollouts a task the gain is
    underestimated, as a loss is; a policy that left what was logged shows by its mean weight.

    Args:
        compared: The rollouts to judge by.
        reward_range: The least and the greatest possible reward.

    Returns:
        The scores of tasks with more than one rollout; None where there are too few of them.

    Source:
        Swaminathan & Joachims, The self-normalized estimator (2015), within each context.
    """
    _, number, counts = np.unique(compared.tasks, return_inverse=True, return_counts=True)
    several = counts > 1
    if several.sum() < LEAST_TASKS:
        return None
    values = []
    for weights in (compared.weights, compared.live.weights):
        total = np.bincount(number, weights)
        earned = np.bincount(number, weights * compared.new.rewards)
        plain = np.bincount(number, compared.new.rewards) / counts
        values.append(np.where(total > 0, earned / np.maximum(total, 1e-300), plain))
    span = reward_range[1] - reward_range[0]
    return Scores((values[0] - values[1])[several], -span)


def _modelled_gain(compared: Compared) -> Floats:
    return compared.new.modelled_policy - compared.live.modelled_policy


def _least_centred(logged: Compared, reward_range: tuple[float, float]) -> float:
    """Find the least score that the logged weights allow, whatever the rewards."""
    low, high = reward_range
    difference = logged.weights - logged.live.weights
    if logged.modelled:
        centre = np.clip(logged.new.modelled_taken, low, high)
    else:  # other rollouts may have any mean in the range
        centre = np.where(difference > 0, high, low)
    worst = np.where(difference > 0, difference * (low - centre), difference * (high - centre))
    return float((worst + _modelled_gain(logged)).min(initial=-(high - low) / 100))


def mean_of_others(rewards: Floats, tasks: NDArray[np.int64], alone: float) -> Floats:
    """Average the rewards of the other rollouts of each rollout's task, shape [N]."""
    _, number, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    total, count = np.bincount(number, rewards)[number], counts[number]
    others = (total - rewards) / np.maximum(count - 1, 1)
    return np.where(count > 1, others, alone)
