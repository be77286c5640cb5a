"""The ranges of the numbers in a loop's file: those that the options of the commands have."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple


class Numbers(NamedTuple):
    """A range of numbers. Neither infinity nor NaN, which TOML can write, is in any."""

    allowed: str
    """The range in words."""
    least: float = -math.inf
    most: float = math.inf
    is_open: bool = False
    """Whether `least` itself is outside; a finite `most` of a number with a fraction always is."""

    def has(self, number: float) -> bool:
        """Return whether a number is in the range."""
        above = self.least < number if self.is_open else self.least <= number
        below = number < self.most if isinstance(number, float) else number <= self.most
        return math.isfinite(number) and above and below


ANY, COUNT = Numbers("a finite number"), Numbers("at least 1", 1)
FROM_0, ABOVE_0 = Numbers("at least 0", 0), Numbers("above 0", 0, is_open=True)
BETWEEN, SHARE = Numbers("between 0 and 1", 0, 1, is_open=True), Numbers("from 0 to below 1", 0, 1)
RANGES: dict[str, dict[str, Numbers]] = {
    "run": {
        "samples": COUNT,
        "jobs": COUNT,
        "timeout": Numbers("at least 0.1 seconds", 0.1),
        "retries": FROM_0,
        "failed_reward": ANY,
    },
    "learn": {"rounds": COUNT},
    "split": {"held_out": BETWEEN, "final": SHARE},
    "gate": {"samples": COUNT, "alpha": BETWEEN, "least_gain": ANY},
    "prompts": {
        "candidates": Numbers("from 1 to 20", 1, 20),
        "share": BETWEEN,
        "records": COUNT,
        "failed_below": ANY,
        "max_length": COUNT,
        "max_prompt": Numbers("at least 1000", 1000),
        "max_arms": Numbers("at least 2", 2),
        "temperature": FROM_0,
        "concurrency": COUNT,
        "retries": FROM_0,
        "timeout": Numbers("at least 1 second", 1),
    },
    "policy": {"exploration": SHARE, "kl_weight": FROM_0},
    "weights": {"ready_seconds": ABOVE_0},
    "stop": {"rollouts": COUNT, "hours": ABOVE_0, "no_gain_rounds": COUNT},
}
"""Allowed values, by part and setting. A setting without a value is always allowed."""


def outside(config: Any) -> Iterator[str]:
    """Yield each setting that is outside of its range, with the range."""
    for part, ranges in RANGES.items():
        for name, numbers in ranges.items():
            value = getattr(getattr(config, part), name, None)
            if value is not None and not numbers.has(value):
                yield f"[{part}] {name} is {value:g}, but must be {numbers.allowed}"
