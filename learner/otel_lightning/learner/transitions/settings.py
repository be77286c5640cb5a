"""Settings of building transitions: rewards, agents, tasks, credit and split."""

from dataclasses import asdict, dataclass

from otel_lightning.learner.credit import Options
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.runs import to_json

VERSION = 2
"""Version of the computation: if it is raised, every transition is rebuilt."""
TASK_BY = {
    "user": "the messages of the user in its first call, whatever the system prompt says",
    "prompt": "everything that its first call saw: system prompt, messages and tools",
    "id": "nothing: it is a task of its own",
}
"""Ways to find the task of a rollout without a task id, with a description."""


@dataclass(frozen=True, slots=True)
class Settings(Options):
    """Settings of building transitions, including those of the credit methods.

    Raises:
        DataError: If a value is not allowed.
    """

    reward: str | None = None
    """Name of the rewards, or a rule that gives them; None uses all received rewards."""
    agents: tuple[str, ...] = ()
    """Patterns for the names of the agents to learn from; an empty tuple selects all."""
    idle: float = 30.0
    """Minutes without a call after which an open rollout counts as truncated."""
    credit: str = "identical"
    held_out: float = 0.3
    """Share of the tasks that are held out for the gate, in [0, 1]."""
    shuffle_rewards: int | None = None
    """Seed of the negative control that permutes rewards; None permutes nothing."""
    task_by: str = "user"
    """How to find the task of a rollout without a task id: a key of `TASK_BY`."""

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.task_by not in TASK_BY:
            raise DataError(f"Unknown task name '{self.task_by}'. Known: {', '.join(TASK_BY)}.")

    @property
    def identity(self) -> str:
        """Fingerprint of the settings: transitions are rebuilt when it changes."""
        return to_json(asdict(self) | {"idle": None, "version": VERSION})
