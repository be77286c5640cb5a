"""Which logged choices to read, and how."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Window:
    """Which logged choices to read."""

    key: str
    reward: str | None = None
    held_out: float = 0.3
    since: datetime | None = None
    until: datetime | None = None
    missing: str | None = None
    worst: float | None = None
    """Smallest possible reward, for `--missing worst`; None uses the smallest logged reward."""
    propensities: str = "auto"
    shuffle_rewards: int | None = None
    task_by: str = "user"
    """How to name the task of a rollout without a task id; one of `TASK_BY`."""
