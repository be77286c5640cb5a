"""Kahneman-Tversky optimization: good completions likelier, bad ones less likely, without pairs.

loss = KTO's loss + sft * NLL of a token in good completions.

Without the second term bad completions may pull down good ones that they share words with:
measured on text-to-SQL, plain KTO ended below the model before learning.

Source:
    Ethayarajh et al., KTO (2024, arXiv:2402.01306), eq. 7 for the loss, eq. 8 for the balance of
    good and bad completions. The SFT term is that of `dpo`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.algorithms import Row

if TYPE_CHECKING:
    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.job import Job

LEARNING_RATE = 0.25


@dataclass(frozen=True, slots=True)
class Settings:
    """The threshold of good completions, and the limit on the model's change."""

    threshold: float = 0.0
    """Advantage above which a completion is good. One below it is bad. One equal to it is left out
    if others are below it, as in a tie of `--credit group`; if none is below it, as with rewards of
    0 and 1 and `--credit identical`, the equal ones are the bad ones."""
    beta: float = 0.1
    """Pull towards the model before learning; higher values change it less."""
    sft: float = 1.0
    """Weight of the SFT term on good completions; 0 is plain KTO."""


def rows(examples: Sequence["Example"], settings: Settings) -> list[Row]:
    """Label completions good or bad.

    Raises:
        DataError: If one of the two kinds is missing.
    """
    threshold = settings.threshold
    has_worse = any(e.advantage < threshold for e in examples)
    informative = [e for e in examples if e.advantage != threshold or not has_worse]
    good = sum(e.advantage > threshold for e in informative)
    if good in {0, len(informative)}:
        lowest = min((e.advantage for e in informative), default=threshold)
        raise DataError(
            f"kto needs good and bad completions, but all {len(informative):,} of the train split "
            f"have an advantage {'above' if good else 'of at most'} {threshold:g} (the lowest is "
            f"{lowest:g}). Say with --threshold where good begins, build transitions with --credit "
            "group, or collect rollouts that differ in their rewards."
        )
    return [
        {
            "prompt_ids": list(e.prompt),
            "completion_ids": list(e.completion),
            "label": e.advantage > threshold,
        }
        for e in informative
    ]


def learn(job: "Job", train: list[Row], validation: list[Row], settings: Settings) -> float:
    """Fine-tune by TRL's KTOTrainer on token ids, with both labels of equal total weight."""
    from trl import KTOConfig

    from otel_lightning.learner.weights.trainer.trl_overrides import TokenizedKTOTrainer

    good = sum(row["label"] for row in train)
    bad = len(train) - good
    own = {
        "beta": settings.beta,
        # The rarer kind weighs as much more as it is rarer; the other kind weighs 1.
        "desirable_weight": max(bad / good, 1.0),
        "undesirable_weight": max(good / bad, 1.0),
        "max_length": job.max_length,
        "precompute_ref_log_probs": True,
    }
    arguments = KTOConfig(**job.arguments(own))
    return job.fit(TokenizedKTOTrainer, arguments, train, validation, sft=settings.sft)
