"""Kahneman-Tversky optimization: good completions likelier, bad ones less likely, without pairs.

Source:
    Ethayarajh et al., KTO (2024, arXiv:2402.01306), eq. 7 for the loss, eq. 8 for the balance of
    good and bad completions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.algorithms import Row

if TYPE_CHECKING:
    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.job import Job

LEARNING_RATE = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """What is good, and how far the model may move."""

    threshold: float = 0.0
    """Advantage above which a completion is good; below it, it is bad; equal, it is left out."""
    beta: float = 0.1
    """Pull towards the model before learning; higher values change it less."""


def rows(examples: Sequence["Example"], settings: Settings) -> list[Row]:
    """Label completions good or bad.

    Raises:
        DataError: If one of the two kinds is missing.
    """
    told = [e for e in examples if e.advantage != settings.threshold]
    good = sum(e.advantage > settings.threshold for e in told)
    if good in {0, len(told)}:
        raise DataError(
            f"kto needs good and bad completions; the train split has {good} with an advantage "
            f"above {settings.threshold:g} and {len(told) - good} below. Collect rollouts that "
            "differ in their rewards, or build transitions with --credit group."
        )
    return [
        {
            "prompt_ids": list(e.prompt),
            "completion_ids": list(e.completion),
            "label": e.advantage > settings.threshold,
        }
        for e in told
    ]


def learn(job: "Job", train: list[Row], validation: list[Row], settings: Settings) -> float:
    """Fine-tune by TRL's KTOTrainer on token ids, with both labels of equal total weight."""
    from trl import KTOConfig

    from otel_lightning.learner.weights.trl_overrides import TokenizedKTOTrainer

    good = sum(row["label"] for row in train)
    bad = len(train) - good
    own = {
        "beta": settings.beta,
        "desirable_weight": max(bad / good, 1.0),
        "undesirable_weight": max(good / bad, 1.0),
        "max_length": job.max_length,
        "precompute_ref_log_probs": True,
    }
    return job.fit(TokenizedKTOTrainer, KTOConfig(**job.arguments(own)), train, validation)
