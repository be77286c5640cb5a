"""Logprobs under the behavior policy: as logged, computed again, or refused."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.examples import NO_LOGPROB, Example, Tokenized
from otel_lightning.learner.weights.trainer.likelihood import token_logprobs


class Behavior(NamedTuple):
    """Examples with the logprob of every token, all sampled at one temperature."""

    examples: list[Example]
    temperature: float
    recomputed: int


def with_behavior(
    tokenized: Tokenized, model: nn.Module, batch_size: int, algorithm: str
) -> Behavior:
    """Give every example its behavior logprobs.

    Logged ones are trusted at temperature 1 only: at others, some servers log them before and some
    after scaling. All others are computed with the model before learning, which has to be the one
    that wrote the completions. Examples of another temperature than most are left out and counted,
    and so are greedy ones, which were not sampled.

    Args:
        tokenized: Transitions in tokens.
        model: The model before learning.
        batch_size: Examples in one forward pass.
        algorithm: Named in errors.

    Raises:
        DataError: If several models wrote completions without logprobs, or all were greedy.
    """
    sampled = Counter(e.temperature for e in tokenized.examples if e.temperature > 0)
    if not sampled:
        raise DataError(
            f"All {len(tokenized.examples):,} completions were decoded greedily (temperature 0), "
            f"so {algorithm} has no probabilities to compare. Sample at temperature 1, or use rft."
        )
    temperature = sampled.most_common(1)[0][0]
    comparable = []
    for e in tokenized.examples:
        if e.temperature == temperature:
            comparable.append(e)
        else:
            tokenized.leave_out(e.rollout_id, NO_LOGPROB)
    # At another temperature all are computed again, the logged ones too.
    missing = [i for i, e in enumerate(comparable) if e.logprobs is None or temperature != 1]
    _check_models([comparable[i] for i in missing], len(comparable), algorithm)
    computed = token_logprobs(
        model, [comparable[i] for i in missing], batch_size, "Computing behavior logprobs"
    )
    for i, logprobs in zip(missing, computed, strict=True):
        comparable[i] = replace(comparable[i], logprobs=tuple(logprobs.tolist()))
    return Behavior(comparable, temperature, len(missing))


def _check_models(missing: Sequence[Example], count: int, algorithm: str) -> None:
    models = Counter(e.model for e in missing if e.model)
    if len(models) > 1:
        named = ", ".join(f"{name} ({n})" for name, n in models.most_common(4))
        raise DataError(
            f"{len(missing):,} of {count:,} completions have no usable logprobs, and {len(models)} "
            f"models wrote them: {named}. {algorithm} can compute only those of the model in "
            "--model. Record logprobs, or use rft, awr, dpo or kto."
        )
