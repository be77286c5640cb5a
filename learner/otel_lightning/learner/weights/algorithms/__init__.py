"""Algorithms that fine-tune weights: one self-contained file each, imported only when chosen.

Each has `learn(rows, settings, output)`: from the transitions of a store to a model in `output`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_lightning.learner.evaluate.gate import Verdict

ALGORITHMS = {
    "rft": "Fine-tune on the completions that earned a reward (reward-filtered SFT).",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How weights are fine-tuned; the same for all algorithms."""

    model: Path
    threshold: float = 0.0
    learning_rate: float = 1e-5
    steps: int = 60
    batch_size: int = 16
    clip: float = 10.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned, in numbers, and what the gate said."""

    metrics: Mapping[str, Any]
    verdict: "Verdict"
