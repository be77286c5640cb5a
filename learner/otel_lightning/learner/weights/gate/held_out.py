"""The gate for new weights, by their likelihood of held-out completions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from otel_lightning.collector.terminal.quantities import decimal
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.fallen import fallen
from otel_lightning.learner.evaluate.gains import Compared, centred, within_tasks
from otel_lightning.learner.evaluate.gate import (
    Requirements,
    Verdict,
    held_out_verdict,
    importance_weights,
)
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.evaluate.refusals import Cause, Refusal
from otel_lightning.learner.evaluate.reward_range import Range
from otel_lightning.learner.evaluate.reward_range import reward_range as range_of
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.gate.expected_reward import (
    Rollouts,
    expected_rewards,
    rollouts_of,
)

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
PERMUTATIONS = 400
BY_RUNNING = "judge by running the agent with both models: lightning-learn evaluate --model"
MIN_EFFECTIVE_SHARE = 0.05
"""Smallest effective sample size as a share of the held-out rollouts."""


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Logprob of each held-out completion before and after learning, shape [N]."""

    before: Floats
    after: Floats


def usable(examples: Sequence[Example], skipped: Sequence[str]) -> list[Example]:
    """Keep rollouts whose probability is known: whole, and sampled rather than greedy."""
    # A greedy completion has probability 1 under the behavior policy, whatever its logprob says, so
    # its importance weight would be wrong. One such call spoils its rollout.
    greedy = {e.rollout_id for e in examples if e.temperature <= 0}
    broken = greedy | set(skipped)
    return [e for e in examples if e.rollout_id not in broken]


def judge_weights(  # noqa: PLR0913 - what to judge, by what, and what it takes
    examples: Sequence[Example],
    likelihoods: Likelihoods,
    *,
    threshold: float,
    clip: float,
    reward_range: Range | None = None,
    least_gain: float = 0.0,
    history: Sequence[Example],
) -> Verdict:
    """Judge new weights by held-out rollouts.

    The importance weight of a rollout is the product over its completions. The gain is estimated
    doubly robustly, with a model of the reward from the training tasks. Where tasks were tried
    several times, rollouts are also compared within their task, so weights that only prefer some
    tasks to others gain nothing. The behavior policy is what was logged; where no logprobs were, or
    at another temperature than 1, at which servers differ in what they log, it is the model before
    learning.

    Args:
        examples: The completions of whole held-out rollouts, shape [N].
        likelihoods: Logprobs of these completions, before and after learning.
        threshold: Advantage above which a completion is one to learn from.
        clip: Largest importance weight of a rollout.
        reward_range: Least and greatest possible reward of a rollout. Without it, rewards that are
            not all 0 or 1 are refused.
        least_gain: The lower bound of the gain must be above this.
        history: Completions of the training tasks, from which the reward is predicted.

    Returns:
        The verdict. It also refuses weights that a change without any relation to the rewards would
        match, weights of thin overlap, a gain that the newest rollouts do not show, and weights
        that find good completions less likely than before: that is how a model that forgets its
        format shows.
    """
    judged, taught = rollouts_of(examples), rollouts_of(history)
    rewards = range_of(np.concatenate([taught.rewards, judged.rewards]), reward_range)
    wanted = Requirements(rewards, least_gain)
    expected = expected_rewards(taught, judged, rewards.range)
    weights = rollout_weights(examples, likelihoods)
    # The model of the reward sees the prompt only, so its prediction for the logged completion is
    # also that for the policy's mean. Only the importance weights tell the two policies apart.
    new = Logged(judged.rewards, weights, expected, expected)
    compared = Compared.with_behavior(new, judged.tasks, clip, sampled=True)
    verdict = held_out_verdict(compared, wanted)
    reasons = (
        *verdict.reasons,
        *_thin(verdict),
        *_over(compared, judged, least_gain),
        *_no_better_than_chance(compared, wanted),
        *_format_refusals(examples, likelihoods, threshold),
    )
    return replace(verdict, reasons=reasons)


def _thin(verdict: Verdict) -> list[Refusal]:
    """Refuse if a small share of the rollouts carries the estimate."""
    share = verdict.effective_sample_size / max(verdict.rollouts, 1)
    if verdict.rollouts == 0 or share >= MIN_EFFECTIVE_SHARE:
        return []
    text = (
        f"the overlap is thin: the {verdict.rollouts:,} rollouts tell as much about the new "
        f"weights as {verdict.effective_sample_size:.1f} of their own would ({share:.1%}; "
        f"{MIN_EFFECTIVE_SHARE:.0%} needed: train fewer steps, or run the agent again with the "
        "new model)"
    )
    return [Refusal(Cause.OVERLAP, text)]


def _over(compared: Compared, judged: Rollouts, least_gain: float) -> list[Refusal]:
    """Refuse a gain that the newest rollouts lost, with weights that are clipped as in the gate."""
    if judged.began is None or not len(judged.began):
        return []
    in_time = compared.take(np.argsort(judged.began, kind="stable"))
    clipped = replace(in_time.new, weights=in_time.weights)
    return fallen(replace(in_time, new=clipped), least_gain, BY_RUNNING)


def _no_better_than_chance(compared: Compared, requirements: Requirements) -> list[Refusal]:
    """Refuse a gain that weights without any relation to the rewards would have as well.

    Such weights are made by permuting rewards among the rollouts of a task. Weights that sharpen
    all answers, or prefer some tasks, are as good after the permutation as before.
    """
    limits, alpha = requirements.rewards.range, requirements.alpha
    within = within_tasks(compared, limits)
    if within is None:
        return []
    gain = float(within.values.mean())
    robust = float(centred(compared, compared, limits).values.mean())
    if min(gain, robust) <= 0:
        text = (
            f"the estimates do not agree on a gain: {decimal(robust, '+')} doubly robust, "
            f"{decimal(gain, '+')} within tasks"
        )
        return [Refusal(Cause.DISAGREEMENT, text)]
    rng = np.random.default_rng(0)
    as_good = 0
    for _ in range(PERMUTATIONS):
        drawn = rng.random(len(compared.tasks))
        # Sort by task in two ways, once by position and once by a random number. The n-th of a task
        # gets the reward of the n-th in the random order: a permutation within each task, without a
        # loop.
        order = np.empty(len(drawn), dtype=np.int64)
        order[np.lexsort((np.arange(len(drawn)), compared.tasks))] = np.lexsort(
            (drawn, compared.tasks)
        )
        new = replace(compared.new, rewards=compared.new.rewards[order])
        mixed = within_tasks(replace(compared, new=new), limits)
        as_good += mixed is not None and float(mixed.values.mean()) >= gain
    # The gain that was observed counts as one permutation, so the p-value is never 0 (Phipson &
    # Smyth, Permutation p-values should never be zero, 2010).
    share = (1 + as_good) / (1 + PERMUTATIONS)
    if share <= alpha:
        return []
    text = (
        f"a change without relation to the rewards gains as much in {share:.0%} of "
        f"{PERMUTATIONS} permutations"
    )
    return [Refusal(Cause.PERMUTATION, text)]


def rollout_weights(examples: Sequence[Example], likelihoods: Likelihoods) -> Floats:
    """Compute the importance weight of each rollout: the product over its completions.

    Returns:
        Shape [rollouts], in the order of their sorted ids.
    """
    names, rollout = np.unique([e.rollout_id for e in examples], return_inverse=True)
    logged = np.array(
        [
            # At another temperature some servers log logprobs before it is applied and others
            # after.
            before if e.logprob is None or e.temperature != 1 else e.logprob
            for e, before in zip(examples, likelihoods.before, strict=True)
        ]
    )
    # Logarithms add up: the probability of a rollout is the product over its completions.
    after, before = (
        np.bincount(rollout, values, len(names)).astype(np.float64)
        for values in (likelihoods.after, logged)
    )
    return importance_weights(after, before)


def weight_quantiles(weights: Floats) -> dict[str, float]:
    """Name quantiles of importance weights, for the plot of the overlap.

    Example:
        >>> weight_quantiles(np.array([0.5, 1.0, 2.0]))["importance_weight/q50"]
        1.0
    """
    if len(weights) == 0:
        return {}
    values = np.quantile(weights, QUANTILES)
    return {
        f"importance_weight/q{100 * q:02.0f}": float(value)
        for q, value in zip(QUANTILES, values, strict=True)
    }


def divergence(examples: Sequence[Example], likelihoods: Likelihoods) -> float:
    """Estimate the KL divergence of the model before from the one after, in nats per token.

    KL(before || after) is the mean of log before - log after over completions that the model
    before wrote, which the held-out ones are.
    """
    tokens = sum(len(e.completion) for e in examples)
    if tokens == 0:
        return float("nan")
    return float((likelihoods.before - likelihoods.after).sum()) / tokens


def logged_difference(examples: Sequence[Example], before: Floats) -> float:
    """Compare logged logprobs with those of the model before learning, in nats per token.

    Far from 0, the model is not the one that wrote the log, or the server scaled its logprobs.
    """
    pairs = [
        (abs(e.logprob - value), len(e.completion))
        for e, value in zip(examples, before, strict=True)
        if e.logprob is not None and e.temperature == 1
    ]
    tokens = sum(count for _, count in pairs)
    return sum(gap for gap, _ in pairs) / tokens if tokens else float("nan")


def mean_token_logprobs(
    examples: Sequence[Example], likelihoods: Likelihoods, threshold: float
) -> tuple[float, float]:
    """Average the logprob of a token in the completions above the threshold, before and after."""
    good = np.array([e.advantage > threshold for e in examples], dtype=bool)
    tokens = sum(len(e.completion) for e in examples if e.advantage > threshold)
    if tokens == 0:
        return np.nan, np.nan
    return (
        float(likelihoods.before[good].sum()) / tokens,
        float(likelihoods.after[good].sum()) / tokens,
    )


def _format_refusals(
    examples: Sequence[Example], likelihoods: Likelihoods, threshold: float
) -> list[Refusal]:
    before, after = mean_token_logprobs(examples, likelihoods, threshold)
    if np.isnan(before):
        text = f"no held-out completion has an advantage above {threshold:g} to check the form by"
    elif after < before:
        text = f"good held-out completions became less likely: {before:.4f} to {after:.4f} a token"
    else:
        return []
    return [Refusal(Cause.FORMAT, text)]
