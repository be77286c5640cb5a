"""Learn a policy that sees context, and judge it against the live one on held-out tasks."""

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
    """Learn from one part of the choices, and judge what was learned by the other.

    Args:
        choices: Logged choices, shape [N].
        features: Features of their inputs, shape [N, D].
        in_train: Which of them to learn from; the others judge, shape [N].
        live: Probability of each arm under the live policy, shape [N, K].
        settings: How to learn.
        demands: The range of the rewards, None if it is not known, and the least gain.
    """
    # A flag counts an absent attribute as false; what is served is what must be judged.
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
    # An arm that nobody tried is taken for the worst where the new policy serves it and for the
    # best where the live one does.
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
