"""The reasons of the gate to refuse, each with its cause."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """Cause of a refusal, as it is recorded beside its text."""

    CHANCE = "chance"
    FEW_TASKS = "few_tasks"
    SMALL_SAMPLE = "small_sample"
    """The effective sample is small."""
    PERMUTATION = "permutation"
    """The same gain appears after the rewards of each task were permuted."""
    CLIPPING = "clipping"
    MEAN_WEIGHT = "mean_weight"
    """The mean importance weight is not 1."""
    OVERLAP = "overlap"
    """Few rollouts carry nearly all of the importance weight."""
    DISAGREEMENT = "disagreement"
    """Two estimates of the gain differ in sign."""
    FORMAT = "format"
    """Good held-out completions became less likely, or there are none."""
    FALLEN = "fallen"
    """The newest rollouts show no gain."""
    MISSING_REWARDS = "missing_rewards"
    REWARD_RANGE = "reward_range"
    NOTHING_NEW = "nothing_new"
    UNKNOWN = "unknown"
    """Recorded by a version that recorded no causes."""


BY_MORE_TASKS = frozenset({Cause.CHANCE, Cause.FEW_TASKS, Cause.SMALL_SAMPLE, Cause.PERMUTATION})
"""Causes that more tasks can remove."""
OLD_WORDS = {"the gain may be chance": Cause.CHANCE, "needed: collect more": Cause.SMALL_SAMPLE}
"""Words by which verdicts without causes are read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse."""

    cause: Cause
    text: str
    """The reason, as a part of a sentence: it says what to do if something can be done."""


def recorded_refusals(gate: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """Return the refusals of the column `gate` of a run, or of a policy, parsed from JSON."""
    texts: list[str] = gate["refusals"]
    causes = gate.get("causes") or [_by_words(text) for text in texts]
    return tuple(
        # A newer version may know more causes.
        Refusal(Cause(cause) if cause in set(Cause) else Cause.UNKNOWN, text)
        for cause, text in zip(causes, texts, strict=True)
    )


def _by_words(text: str) -> Cause:
    return next((cause for words, cause in OLD_WORDS.items() if words in text), Cause.UNKNOWN)
