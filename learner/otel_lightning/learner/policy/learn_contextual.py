"""Learn a contextual policy, and compare it with the live policy on held-out tasks."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.evaluate.gains import Compared
from otel_lightning.learner.evaluate.gate import Demands, Verdict, held_out_verdict
from otel_lightning.learner.policy import contextual
from otel_lightning.learner.policy.features import Features
from otel_lightning.learner.policy.reward_range import Range, Rewards, reward_range
from otel_lightning.learner.policy.softmax import Choices, Floats, Settings


@dataclass(frozen=True, slots=True)
class InContext:
    """A contextual policy, its mean shares over the logged inputs, and the verdict."""

    policy: contextual.Policy
    shares: Floats
    verdict: Verdict
    rewards: Rewards


def learn_and_judge_in_context(  # noqa: PLR0913 - the data, the live policy and the settings
    choices: Choices,
    features: Features,
    in_train: NDArray[np.bool_],
    live: Floats,
    *,
    settings: Settings,
    demands: tuple[Range | None, float],
) -> InContext:
    """Learn a policy from the training choices, and judge it on the held-out choices.

    Args:
        choices: Logged choices, shape [N].
        features: Features of their inputs, shape [N, D].
        in_train: Whether a choice is for training; the others are held out, shape [N].
        live: Probability of each arm under the live policy, shape [N, K].
        settings: Exploration, penalties and step sizes.
        demands: The range of the rewards, None if it is not known, and the least gain.
    """
    # flagd counts an absent feature as false. Judge the policy in the form in which it is served.
    values = np.nan_to_num(features.values, nan=0.0) if features.binary else features.values
    train = choices.where(in_train)
    policy, model = contextual.learn(train, values[in_train], features.names, settings)
    new = policy.probabilities(values)
    modelled = policy.standard.apply(values) @ model.T
    tried = choices.per_arm(np.ones_like(choices.rewards))
    gaining = {
        arm: int(tried[i])
        for i, arm in enumerate(choices.arms)
        if new[:, i].mean() > live[:, i].mean()
    }
    rewards = reward_range(choices.rewards, demands[0], gaining)
    low, high = rewards.range
    modelled = np.clip(modelled, low, high)
    # An untried arm has no reward. Assume the least one under the new policy and the greatest one
    # under the live policy, so that ignorance never counts as a gain.
    for_new, for_live = (np.where(tried > 0, modelled, limit) for limit in (low, high))
    everything = Compared(
        contextual.seen_by(choices, new, for_new),
        contextual.seen_by(choices, live, for_live),
        choices.tasks,
    )
    held_out = Compared(
        everything.new.take(~in_train),
        everything.live.take(~in_train),
        choices.tasks[~in_train],
    )
    verdict = held_out_verdict(held_out, Demands(rewards.range, demands[1]), everything)
    verdict = replace(verdict, refusals=verdict.refusals + rewards.refusals)
    return InContext(policy, new.mean(axis=0), verdict, rewards)
