"""The recipe of a small model: its training data, its size and the settings of training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Conversation = list[dict[str, Any]]
TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text("utf-8")
"""The chat template of all models."""
WORDS = r" ?[A-Za-z_]+|[0-9]+| ?[^A-Za-z0-9_\s]|\s"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Training data, size and training settings of a model."""

    demonstrations: Sequence[Conversation]
    tools: Sequence[dict[str, Any]] = ()
    fixed_texts: Sequence[str] = ()
    """Texts that become one token each."""
    words: str = WORDS
    """Regular expression of the pieces that no token crosses."""
    vocabulary: int = 1400
    context: int = 512
    layers: int = 2
    width: int = 112
    steps: int = 220
    batch: int = 48
    learning_rate: float = 3e-3
