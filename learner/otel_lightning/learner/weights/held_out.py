"""What the gate asks of new weights, from how likely they find the held-out completions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.evaluate.gains import Compared
from otel_lightning.learner.evaluate.gate import (
    Demands,
    Verdict,
    held_out_verdict,
    importance_weights,
)
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.weights.examples import Example

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Logprob of each held-out completion before and after learning, shape [N]."""

    before: Floats
    after: Floats


def usable(examples: Sequence[Example], skipped: Sequence[str]) -> list[Example]:
    """Keep rollouts whose probability is known: whole, and sampled rather than greedy."""
    greedy = {e.rollout_id for e in examples if e.temperature <= 0}
    broken = greedy | set(skipped)
    return [e for e in examples if e.rollout_id not in broken]


def judge_weights(
    examples: Sequence[Example],
    likelihoods: Likelihoods,
    *,
    threshold: float,
    clip: float,
) -> Verdict:
    """Judge new weights by held-out rollouts.

    The importance weight of a rollout is the product over its completions, clipped, and the
    value is self-normalized. The behavior policy is what was logged; where no logprobs were, or
    at another temperature than 1, at which servers differ in what they log, it is the model
    before learning.

    Args:
        examples: The completions of whole held-out rollouts, shape [N].
        likelihoods: Of these completions, before and after.
        threshold: Advantage above which a completion is one to learn from.
        clip: Largest importance weight of a rollout.

    Returns:
        The verdict. It also refuses weights that find good completions less likely than before:
        that is how a model that forgets its format shows.
    """
    logged = np.array(
        [
            before if e.logprob is None or e.temperature != 1 else e.logprob
            for e, before in zip(examples, likelihoods.before, strict=True)
        ]
    )
    names, rollout, first = _numbered([e.rollout_id for e in examples])
    _, task, _ = _numbered([e.task for e in examples])

    def per_rollout(values: Floats) -> Floats:
        return np.bincount(rollout, values, minlength=len(names)).astype(np.float64)

    rewards = per_rollout(np.array([e.reward for e in examples]))
    weights = importance_weights(per_rollout(likelihoods.after), per_rollout(logged))
    new = Logged.without_model(rewards, weights)
    demands = Demands((float(rewards.min(initial=0.0)), float(rewards.max(initial=1.0))))
    verdict = held_out_verdict(Compared.with_behavior(new, task[first], clip), demands)
    refusals = verdict.refusals + tuple(_format_refusals(examples, likelihoods, threshold))
    return replace(verdict, refusals=refusals)


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
) -> list[str]:
    before, after = mean_token_logprobs(examples, likelihoods, threshold)
    if np.isnan(before):
        return [f"no held-out completion has an advantage above {threshold:g} to check the form by"]
    if after < before:
        return [
            f"good held-out completions became less likely: {before:.4f} to {after:.4f} a token"
        ]
    return []


def _numbered(names: Sequence[str]) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Number names: the names, the number of each item and the first item of each number."""
    unique, first, number = np.unique(np.array(names), return_index=True, return_inverse=True)
    return unique.tolist(), number.astype(np.int64), first.astype(np.int64)
