"""How transitions are built: which rewards, which agents, which credit, which split."""

from dataclasses import asdict, dataclass

from otel_lightning.learner.credit import Options
from otel_lightning.learner.runs import to_json

VERSION = 1
"""Of what is computed: raising it builds every transition again."""


@dataclass(frozen=True, slots=True)
class Settings(Options):
    """How transitions are built: what the credit methods leave open, and the rest."""

    reward: str | None = None
    """Name of the rewards, or a rule that gives them; None takes all that were received."""
    agents: tuple[str, ...] = ()
    """Patterns of the names of agents to learn from; none selects all."""
    idle: float = 30.0
    """Minutes without a call after which an open rollout counts as cut off."""
    credit: str = "identical"
    held_out: float = 0.3
    shuffle_rewards: int | None = None

    @property
    def identity(self) -> str:
        """All that changes a transition whose inputs stay as they are."""
        return to_json(asdict(self) | {"idle": None, "version": VERSION})
