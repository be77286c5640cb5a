"""Estimate the gain of a new policy over the live one per task, from rollouts of a third policy.

Both policies are evaluated on the same rollouts, so common noise cancels. Rollouts of one task are
correlated, so a task is one observation. Within a task, rewards are measured from a centre that is
the same for both policies, so a task with more weight adds no gain by its weight alone.
"""

from dataclasses import dataclass, replace

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.evaluate.betting import Scores
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.evaluate.off_policy.logged import Rows

SPARSE = 20
"""Largest ratio of the range of task numbers to the number of rollouts for counting."""
MIN_REPEATED_TASKS = 10
"""Smallest number of tasks with several rollouts for a comparison within tasks."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Held-out rollouts with importance weights of two policies; arrays of shape [N]."""

    new: Logged
    live: Logged
    tasks: Integers
    """Number of each rollout's task."""
    clip: float | None = None
    """Largest importance weight of the new policy; None clips nothing."""
    sampled: bool = False
    """Whether the weights are of sampled tokens; those of a task need not average 1 then."""

    @classmethod
    def with_behavior(
        cls,
        new: Logged,
        tasks: Integers,
        clip: float | None = None,
        *,
        sampled: bool = False,
    ) -> "Compared":
        """Compare with the policy that logged the rollouts: its weights are 1."""
        ones = np.ones_like(new.weights)
        # Under the policy that logged the rollout the action taken is a draw from it, so the
        # model's prediction for that action also stands for the policy's mean.
        live = Logged(new.rewards, ones, new.modelled_taken, new.modelled_taken)
        if not new.modelled_taken.any():
            live = Logged.without_model(new.rewards, ones)
        return cls(new, live, tasks, clip, sampled)

    def swapped(self) -> "Compared":
        """Exchange the new and the live policy."""
        clipped = replace(self.new, weights=self.weights)
        return Compared(self.live, clipped, self.tasks, sampled=self.sampled)

    def take(self, rows: Rows) -> "Compared":
        """Select rollouts by a mask or by number."""
        return replace(
            self, new=self.new.take(rows), live=self.live.take(rows), tasks=self.tasks[rows]
        )

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
        """Whether there is a model of the reward."""
        return bool(self.new.modelled_taken.any())


def per_task(values: Floats, tasks: Integers) -> Floats:
    """Average values of shape [N] within each task, shape [T]."""
    if not len(tasks):
        return np.zeros(0)
    number = task_numbers(tasks)
    counts = np.bincount(number)
    # Task numbers may have gaps: keep only those that occur, in increasing order. All callers rely
    # on this one order of tasks.
    there = counts > 0
    return np.asarray(np.bincount(number, values)[there] / counts[there], dtype=np.float64)


def per_task_counts(tasks: Integers) -> Floats:
    """Count the rollouts of each task, shape [T]."""
    counts = np.bincount(task_numbers(tasks))
    return counts[counts > 0].astype(np.float64)


def task_numbers(tasks: Integers) -> Integers:
    """Number the tasks from 0; some numbers may be unused.

    Numbers of tasks are nearly dense, so counting them is ten times faster than sorting them.
    """
    least = tasks.min()
    if tasks.max() - least < SPARSE * len(tasks):
        return np.asarray(tasks - least, dtype=np.int64)
    return np.asarray(np.unique(tasks, return_inverse=True)[1], dtype=np.int64)


def from_limits(compared: Compared, reward_range: tuple[float, float]) -> Scores:
    """Score each task by w_new * (r - low) + w_live * (high - r) - (high - low).

    The first term bounds the new policy's value from below, the second the live policy's value from
    above. An action that was never logged counts as the worst reward for the new policy, and as the
    best reward for the live policy. No score is below low - high, for any weights. The weights of
    each task must average 1; else one task gains from another.

    Args:
        compared: Held-out rollouts.
        reward_range: Smallest and largest possible reward.
    """
    low, high = reward_range
    rewards, live = compared.new.rewards, compared.live.weights
    scores = compared.weights * (rewards - low) + live * (high - rewards) - (high - low)
    return Scores(per_task(scores, compared.tasks), low - high)


def centred(compared: Compared, logged: Compared, reward_range: tuple[float, float]) -> Scores:
    """Score each task by (w_new - w_live) * (r - c) plus the modelled gain: low variance.

    With a reward model, c is its prediction and this is the doubly robust estimate of the gain.
    Without a model, c is the mean reward of the task's other rollouts, or the middle of the range
    for the only rollout of a task.

    Args:
        compared: Held-out rollouts.
        logged: All logged rollouts; their weights give the smallest possible score.
        reward_range: Smallest and largest possible reward.

    Source:
        Dudík, Langford & Li, Doubly robust policy evaluation and learning (2011); Kool, van Hoof
        & Welling, Buy 4 REINFORCE samples, get a baseline for free (2019), for the mean of others.
    """
    difference = compared.weights - compared.live.weights
    if compared.modelled:
        centre = compared.new.modelled_taken
    else:
        centre = mean_of_others(compared.new.rewards, compared.tasks, sum(reward_range) / 2)
    scores = difference * (compared.new.rewards - centre) + _modelled_gain(compared)
    return Scores(per_task(scores, compared.tasks), _least_centred(logged, reward_range))


def robust_gains(compared: Compared) -> Floats:
    """Compute the doubly robust score of each rollout's gain, shape [N].

    Each policy has its own modelled reward here, as where one of them has untried arms.
    """
    new, live = compared.new, compared.live
    return np.asarray(
        new.weights * (new.rewards - new.modelled_taken)
        - live.weights * (live.rewards - live.modelled_taken)
        + _modelled_gain(compared),
        dtype=np.float64,
    )


def within_tasks(compared: Compared, reward_range: tuple[float, float]) -> Scores | None:
    """Score each task by the difference of its self-normalized values, sum(w r) / sum(w).

    A value stays in the range of the rewards for any weights, and a task with more weight gains
    nothing by it. With few rollouts per task, gains and losses are underestimated. A policy with
    actions that were never logged is recognised by its mean weight, not here.

    Args:
        compared: Held-out rollouts.
        reward_range: Smallest and largest possible reward.

    Returns:
        The scores of tasks with more than one rollout; None if there are fewer than
        `MIN_REPEATED_TASKS`.

    Source:
        Swaminathan & Joachims, The self-normalized estimator (2015), within each context.
    """
    _, number, counts = np.unique(compared.tasks, return_inverse=True, return_counts=True)
    several = counts > 1
    if several.sum() < MIN_REPEATED_TASKS:
        return None
    values = []
    for weights in (compared.weights, compared.live.weights):
        total = np.bincount(number, weights)
        earned = np.bincount(number, weights * compared.new.rewards)
        plain = np.bincount(number, compared.new.rewards) / counts
        # A task in which every weight is 0 tells nothing about this policy: its plain mean stands
        # for the value. The tiny divisor only avoids a warning.
        values.append(np.where(total > 0, earned / np.maximum(total, 1e-300), plain))
    span = reward_range[1] - reward_range[0]
    return Scores((values[0] - values[1])[several], -span)


def _modelled_gain(compared: Compared) -> Floats:
    return compared.new.modelled_policy - compared.live.modelled_policy


def _least_centred(logged: Compared, reward_range: tuple[float, float]) -> float:
    """Compute the smallest score that the logged weights allow, over all possible rewards."""
    low, high = reward_range
    difference = logged.weights - logged.live.weights
    if logged.modelled:
        centre = np.clip(logged.new.modelled_taken, low, high)
    else:  # the centre is the mean of other rollouts, which may be anywhere in the range
        centre = np.where(difference > 0, high, low)
    # A rollout that the new policy prefers hurts most with the smallest reward; one that it avoids,
    # with the largest.
    worst = np.where(difference > 0, difference * (low - centre), difference * (high - centre))
    # Never 0: betting divides by the distance from the mean to the smallest score, so equal
    # policies need a limit below 0 as well.
    return float((worst + _modelled_gain(logged)).min(initial=-(high - low) / 100))


def mean_of_others(rewards: Floats, tasks: Integers, alone: float) -> Floats:
    """Average the rewards of the other rollouts of each rollout's task, shape [N]."""
    _, number, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    total, count = np.bincount(number, rewards)[number], counts[number]
    others = (total - rewards) / np.maximum(count - 1, 1)
    return np.where(count > 1, others, alone)
