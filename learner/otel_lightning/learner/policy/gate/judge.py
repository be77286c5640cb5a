"""Learn a policy from training choices, and compare it with the live policy on held-out tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from otel_lightning.learner.arrays import Booleans, Floats
from otel_lightning.learner.evaluate.fallen import fallen
from otel_lightning.learner.evaluate.gains import Compared
from otel_lightning.learner.evaluate.gate import Requirements, Verdict, held_out_verdict
from otel_lightning.learner.evaluate.refusals import Cause, Refusal
from otel_lightning.learner.evaluate.reward_range import Rewards
from otel_lightning.learner.policy.gate.more_rollouts import more_rollouts
from otel_lightning.learner.policy.gate.worst_case import at_worst
from otel_lightning.learner.policy.serving.flag_document import SHARE_UNIT
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.choice_arrays import (
    Choices,
    Settings,
    logged_under,
    reward_model,
)
from otel_lightning.learner.policy.softmax.features import Features

ENOUGH_REWARDED = 10
"""Number of rewarded rollouts below which an arm with little traffic counts as new."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A policy, the share of traffic that it gives each arm, and the verdict."""

    shares: Floats
    """Shape [K]; of a policy with features, the mean over the logged inputs."""
    verdict: Verdict
    rewards: Rewards
    policy: contextual.Policy | None = None
    """None without features."""


def hold_new_arms(choices: Choices, live: Floats, exploration: float) -> Choices:
    """Hold the share of each arm that is too new to be learned.

    An arm is new if it has fewer than `ENOUGH_REWARDED` rewarded rollouts and no more than an even
    share of the traffic. It keeps its share of the exploration, or its live share if that is
    greater. Nothing is held if fewer than two arms would be left to learn.

    Args:
        choices: All logged choices with a reward.
        live: Share of each arm under the live policy, shape [K].
        exploration: Share of all traffic that is divided evenly.
    """
    served = choices.may_serve
    even = 1 / max(int(served.sum()), 1)
    # An arm with more than an even share is not new, even with few rewards: holding it would freeze
    # a decision that somebody made.
    new = served & (choices.tried < ENOUGH_REWARDED) & (live <= even + 1e-9)
    if not new.any() or (served & ~new).sum() < 2:  # noqa: PLR2004 - a choice needs two
        return choices
    return replace(choices, held=np.where(new, np.maximum(live, exploration * even), np.nan))


def learn_and_judge(
    choices: Choices,
    in_train: Booleans,
    shares: Mapping[str, float],
    settings: Settings,
    requirements: Requirements,
) -> Judged:
    """Learn a policy without features from training choices, and judge it on held-out ones.

    Args:
        choices: Logged choices, shape [N]. The reward is NaN where it is missing: such rollouts
            teach nothing, and the gate assumes the worst of them.
        in_train: Whether a choice is for training; the others are held out, shape [N].
        shares: Share of the traffic that the live policy gives each arm.
        settings: Objective, exploration, penalties and step sizes.
        requirements: The range of the rewards, the least gain and the error probability.
    """
    live = np.array([shares.get(arm, 0.0) for arm in choices.arms])
    has_reward = ~np.isnan(choices.rewards)
    rewarded = choices if has_reward.all() else choices.where(has_reward)
    rewarded = hold_new_arms(rewarded, live, settings.exploration)
    train = rewarded.where(in_train[has_reward])
    probabilities = contextual.learn_shares(train, settings)
    # The model is fitted on training rollouts only, so that it is independent of the held-out
    # rewards that it is corrected by.
    modelled = _with_worst_of_untried(
        rewarded, reward_model(train), probabilities - live, requirements
    )
    compared = Compared(
        logged_under(choices, probabilities, modelled),
        logged_under(choices, live, modelled),
        choices.tasks,
    )
    verdict = _verdict(compared, rewarded, in_train, requirements)
    # The gate would say "may be chance", which sounds as if more data could help.
    if np.abs(probabilities - live).max() < SHARE_UNIT:
        verdict = _nothing_new(verdict)
    return Judged(
        probabilities, _naming_untried(verdict, rewarded, probabilities), requirements.rewards
    )


def learn_and_judge_in_context(  # noqa: PLR0913 - the data, the live policy and the settings
    choices: Choices,
    features: Features,
    in_train: Booleans,
    live: Floats,
    *,
    settings: Settings,
    requirements: Requirements,
) -> Judged:
    """Learn a policy with features from training choices, and judge it on held-out ones.

    Args:
        choices: Logged choices, shape [N]; the reward is NaN where it is missing.
        features: Features of their inputs, shape [N, D].
        in_train: Whether a choice is for training; the others are held out, shape [N].
        live: Probability of each arm under the live policy, shape [N, K].
        settings: Objective, exploration, penalties and step sizes.
        requirements: The range of the rewards, the least gain and the error probability.
    """
    # flagd counts an absent feature as false. Judge the policy in the form in which it is served.
    values = np.nan_to_num(features.values, nan=0.0) if features.binary else features.values
    has_reward = ~np.isnan(choices.rewards)
    rewarded = hold_new_arms(choices.where(has_reward), live.mean(axis=0), settings.exploration)
    taught = has_reward & in_train
    train = rewarded.where(in_train[has_reward])
    policy, model = contextual.learn(train, values[taught], features.names, settings)
    new = policy.probabilities(values)
    low, high = requirements.rewards.range
    # A linear model can predict rewards that do not exist. Clipped predictions keep the scores
    # within the limits that the bounds assume.
    modelled = np.clip(policy.standard.apply(values) @ model.T, low, high)
    modelled = _with_worst_of_untried(rewarded, modelled, new - live, requirements)
    compared = Compared(
        contextual.logged_under(choices, new, modelled),
        contextual.logged_under(choices, live, modelled),
        choices.tasks,
    )
    verdict = _verdict(compared, rewarded, in_train, requirements)
    shares = new[has_reward].mean(axis=0)
    return Judged(shares, _naming_untried(verdict, rewarded, shares), requirements.rewards, policy)


def _naming_untried(verdict: Verdict, choices: Choices, shares: Floats) -> Verdict:
    """Name the arms without rollouts in the refusal of weights that are too small for them."""
    untried = [
        f"{share:.2%} of it is of arm '{arm}', which has no rollout with a reward yet"
        for arm, share, tried in zip(choices.arms, shares, choices.tried, strict=True)
        if not tried and share > SHARE_UNIT
    ]
    if not untried:
        return verdict
    reasons = (
        replace(reason, text=f"{reason.text} ({'; '.join(untried)})")
        if reason.cause is Cause.MEAN_WEIGHT
        else reason
        for reason in verdict.reasons
    )
    return replace(verdict, reasons=tuple(reasons))


def _nothing_new(verdict: Verdict) -> Verdict:
    """Refuse a policy that is the live one; no number of rollouts would show a gain."""
    text = "the learned policy is the live one, so there is nothing to promote"
    return replace(
        verdict,
        value=verdict.behavior_value,
        gain=0.0,
        reasons=(Refusal(Cause.NOTHING_NEW, text),),
        tasks_needed=None,
        rollouts_needed={},
    )


def _with_worst_of_untried(
    choices: Choices, model: Floats, difference: Floats, requirements: Requirements
) -> Floats:
    """Return the model of the reward, with the worst possible rewards of the untried arms.

    An untried arm has no reward to correct its model. It counts in the gain by its change of share
    times its reward. So the least reward is assumed where it gains traffic and the greatest one
    where it loses traffic, and ignorance never counts as a gain.

    Args:
        choices: The logged choices with a reward.
        model: Modelled reward of each arm, shape [K] or [N, K].
        difference: Share of the new policy minus that of the live one, shape [K] or [N, K].
        requirements: The range of the rewards.
    """
    low, high = requirements.rewards.range
    worst = np.where(difference > 0, low, np.where(difference < 0, high, model))
    return np.where(choices.tried > 0, model, worst)


def _verdict(
    compared: Compared,
    choices: Choices,
    in_train: Booleans,
    requirements: Requirements,
) -> Verdict:
    """Judge the rollouts with a reward; what passes must also hold with the others at their worst.

    Args:
        compared: All rollouts, shape [N]; the reward is NaN where it is missing.
        choices: The rollouts with a reward.
        in_train: Which of all rollouts are for training, shape [N].
        requirements: The range of the rewards, the least gain and the error probability.
    """
    has_reward = ~np.isnan(compared.new.rewards)
    everything = compared if has_reward.all() else compared.take(has_reward)
    held_out = compared.take(has_reward & ~in_train)
    verdict = held_out_verdict(held_out, requirements, everything)
    reasons = (*verdict.reasons, *fallen(everything, verdict.least_gain))
    if not reasons and not has_reward.all():
        refusals, worst = at_worst(compared, ~in_train, requirements)
        reasons = tuple(refusals)
        # If it is refused, more tasks with as many missing rewards prove no more.
        needed = verdict.tasks if reasons else worst.tasks_needed
        verdict = replace(verdict, tasks_needed=needed)
    return replace(
        verdict,
        reasons=reasons,
        rollouts_needed=more_rollouts(held_out, choices, ~in_train[has_reward], verdict),
    )
