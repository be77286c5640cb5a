"""Group-relative policy optimization offline, on logged tokens and their logged logprobs.

loss = -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A) + beta KL, with r the probability of a
token under the model over that under the behavior policy. Groups may be of any size: advantages
come with the transitions (`lightning-learn transitions --credit group`). Nothing is generated.

Once r has left the clip range, a token has no gradient, so one pass gains little: run the agent
again with the new model and learn again. The lower clip is tight: measured on a small model, an
open lower clip destroyed it in two of three seeds.

Source:
    Shao et al., DeepSeekMath (2024, arXiv:2402.03300), eq. 3; the higher upper clip: Yu et al.,
    DAPO (2025, arXiv:2503.14476), eq. 10.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.algorithms import Row

if TYPE_CHECKING:
    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.job import Job

LEARNING_RATE = 0.5
BEHAVIOR = True


@dataclass(frozen=True, slots=True)
class Settings:
    """The clip range and the pull back."""

    epsilon: float = 0.2
    """Lower clip: a token's probability falls to no less than 1 - epsilon of the logged one."""
    epsilon_high: float = 9.0
    """Upper clip: a token's probability rises to at most 1 + epsilon_high times the logged one."""
    beta: float = 0.0
    """Weight of the KL divergence to the model before learning; above 0 costs a second model."""
    loss: str = "dapo"
    """TRL's `loss_type`: dapo, grpo, dr_grpo, bnpo, cispo, and others that TRL has."""
    level: str = "token"
    """Importance ratios of a `token`, or of a whole completion: `sequence`. With `loss=grpo` the
    latter is GSPO (Zheng et al., 2025, arXiv:2507.18071); `dapo` weighs completions by length."""


def rows(examples: Sequence["Example"], settings: Settings) -> list[Row]:  # noqa: ARG001 - every algorithm has these parameters
    """Keep completions that were better or worse than others, with their behavior logprobs.

    Raises:
        DataError: If no completion has an advantage other than 0.
    """
    # An advantage of 0 has no gradient and would only fill batches.
    informative = [e for e in examples if e.advantage != 0]
    if not informative:
        raise DataError(
            f"All {len(examples):,} advantages of the train split are 0, so there is no gradient. "
            "Run the same tasks several times, and build transitions with --credit group."
        )
    return [
        {
            "prompt": "",  # the trainer asks for this column; the token ids are what it reads
            "prompt_ids": list(e.prompt),
            "completion_ids": list(e.completion),
            "logprobs": list(e.logprobs or ()),
            "advantage": e.advantage,
        }
        for e in informative
    ]


def learn(job: "Job", train: list[Row], validation: list[Row], settings: Settings) -> float:
    """Fine-tune by TRL's GRPOTrainer, fed with the log instead of new generations."""
    from trl import GRPOConfig

    from otel_lightning.learner.weights.trainer.trl_overrides import (
        OfflineGRPOTrainer,
        offline_grpo,
    )

    own = {
        "epsilon": settings.epsilon,
        "epsilon_high": settings.epsilon_high,
        "beta": settings.beta,
        "loss_type": settings.loss,
        "importance_sampling_level": settings.level,
        "temperature": job.temperature,
        "max_completion_length": max(len(row["completion_ids"]) for row in train),
        **offline_grpo(job.accumulate),
    }
    # `even`: GRPOTrainer takes batches of whole groups.
    arguments = GRPOConfig(**job.arguments(own, even=True))
    return job.fit(OfflineGRPOTrainer, arguments, train, validation)
