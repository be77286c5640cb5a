"""Algorithms that fine-tune weights: one self-contained file each, imported only when chosen.

To add one, write its file and add its line below (docs/how-to/add-an-algorithm.md). A file has

- `Settings`: a frozen dataclass of the algorithm's own settings, each with a default;
- `rows(examples, settings)`: the training rows, made from transitions in tokens;
- `learn(job, train, validation, settings)`: the training itself; returns the mean loss;
- `LEARNING_RATE`: factor on the default learning rate of supervised fine-tuning;
- and, only where they apply, `BEHAVIOR = True` if it needs the behavior policy's logprobs, and
  `HEAD = "reward"` if it trains a model that gives a score instead of text.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from otel_lightning.learner.weights.settings import Row

if TYPE_CHECKING:
    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.job import Job

__all__ = ["ALGORITHMS", "Algorithm", "Row", "load", "needs_behavior", "scores_text"]

ALGORITHMS = {
    "rft": "Fine-tune on the completions that earned a reward (reward-filtered SFT).",
    "awr": "Fine-tune on all completions, weighted by their advantage.",
    "dpo": "Prefer the better of two completions of one state.",
    "kto": "Make good completions likelier and bad ones less likely, without pairs.",
    "grpo": "Policy gradient with clipped importance ratios, on logged tokens and logprobs.",
    "reward-model": "Train a model that scores completions, for judging and evaluation.",
}


class Algorithm(Protocol):
    """The names that an algorithm's file has."""

    LEARNING_RATE: float
    Settings: type[Any]
    rows: Callable[[Sequence["Example"], Any], list[Row]]
    learn: Callable[["Job", list[Row], list[Row], Any], float]


def load(name: str) -> Algorithm:
    """Import an algorithm's file; `reward-model` is in `reward_model.py`."""
    return cast("Algorithm", import_module(f"{__name__}.{name.replace('-', '_')}"))


def needs_behavior(algorithm: Algorithm) -> bool:
    """Say whether the algorithm trains on the behavior policy's logprobs."""
    return bool(getattr(algorithm, "BEHAVIOR", False))


def scores_text(algorithm: Algorithm) -> bool:
    """Say whether the trained model gives a score instead of text."""
    return getattr(algorithm, "HEAD", None) == "reward"
