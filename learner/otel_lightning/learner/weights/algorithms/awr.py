"""Advantage-weighted regression: supervised learning in which better completions count more.

w = exp(A / temperature), at most `most`, divided by the mean weight. All completions are learned,
bad ones with little weight, so graded rewards are used in full.

Source:
    Peng et al., Advantage-weighted regression (2019, arXiv:1910.00177), eq. 10 and the clipping
    of its appendix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.algorithms import Row

if TYPE_CHECKING:
    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.job import Job

LEARNING_RATE = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How strongly the advantage counts."""

    temperature: float = 0.5
    """Lower values follow the advantage more closely; must be above 0."""
    most: float = 10.0
    """Largest weight of a completion before weights are scaled to a mean of 1."""


def rows(examples: Sequence["Example"], settings: Settings) -> list[Row]:
    """Give each completion its weight.

    Raises:
        DataError: If the temperature is not above 0, or all completions have the same advantage.
    """
    if settings.temperature <= 0:
        raise DataError(f"awr's temperature must be above 0, not {settings.temperature:g}.")
    if len({e.advantage for e in examples}) < 2:  # noqa: PLR2004 - a difference takes two
        raise DataError(
            f"All {len(examples):,} completions of the train split have the same advantage, so awr "
            "has no better ones to prefer. Collect rollouts that differ in their rewards, or build "
            "transitions with another --credit."
        )
    # exp(min(x, log most)) = min(exp(x), most), without overflow.
    limit = math.log(settings.most)
    weights = [math.exp(min(e.advantage / settings.temperature, limit)) for e in examples]
    mean = sum(weights) / len(weights)
    return [
        {**e.as_labelled(), "weight": weight / mean}
        for e, weight in zip(examples, weights, strict=True)
    ]


def learn(job: "Job", train: list[Row], validation: list[Row], settings: Settings) -> float:  # noqa: ARG001 - every algorithm has these parameters
    """Fine-tune by TRL's SFTTrainer with a weight for each row."""
    from trl import SFTConfig

    from otel_lightning.learner.weights.trainer.trl_overrides import (
        WeightedCollator,
        WeightedSFTTrainer,
    )

    arguments = SFTConfig(**job.arguments({"max_length": None}))
    collator = WeightedCollator(pad_token_id=job.pad_token)
    return job.fit(WeightedSFTTrainer, arguments, train, validation, data_collator=collator)
