"""A reward model: a score for a completion in its state, learned from pairs.

loss = -log sigmoid(score of the better - score of the worse). The result judges and evaluates; it
is not an agent, and its gate asks whether it ranks held-out pairs better than chance.

Source:
    Ouyang et al., Training language models to follow instructions (2022, arXiv:2203.02155), eq. 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_lightning.learner.weights.algorithms import Row
from otel_lightning.learner.weights.preparation.pairs import required_pairs

if TYPE_CHECKING:
    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.job import Job

LEARNING_RATE = 1.0
HEAD = "reward"


@dataclass(frozen=True, slots=True)
class Settings:
    """Which pairs are learned."""

    per_state: int = 4
    """Learn at most this many pairs of one state."""
    center: float = 0.01
    """Pull of the mean score towards 0, so that scores of different runs can be compared."""


def rows(examples: Sequence["Example"], settings: Settings) -> list[Row]:
    """Pair a better with a worse completion of the same state.

    Raises:
        DataError: If no state has two completions of different advantage.
    """
    return [
        {
            "chosen_ids": [*chosen.prompt, *chosen.completion],
            "rejected_ids": [*rejected.prompt, *rejected.completion],
        }
        for chosen, rejected in required_pairs(examples, settings.per_state)
    ]


def learn(job: "Job", train: list[Row], validation: list[Row], settings: Settings) -> float:
    """Train by TRL's RewardTrainer."""
    from trl import RewardConfig, RewardTrainer

    own = {"max_length": job.max_length, "center_rewards_coefficient": settings.center}
    return job.fit(RewardTrainer, RewardConfig(**job.arguments(own)), train, validation)
