"""How transitions are built: which rewards, which agents, which credit, which split."""

from dataclasses import asdict, dataclass, fields

from otel_lightning.learner.credit import Options
from otel_lightning.learner.credit.steps import Baseline, Length, Scale, Value
from otel_lightning.learner.runs import to_json

VERSION = 1
"""Of what is computed: raising it builds every transition again."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How transitions are built."""

    reward: str | None = None
    """Name of the rewards, or a rule that gives them; None takes all that were received."""
    agents: tuple[str, ...] = ()
    """Patterns of the names of agents to learn from; none selects all."""
    idle: float = 30.0
    """Minutes without a call after which an open rollout counts as cut off."""
    credit: str = "identical"
    gamma: float = 1.0
    lam: float = 0.95
    value: Value = "leave_one_out"
    baseline: Baseline = "leave_one_out"
    scale: Scale = "none"
    step_weight: float = 1.0
    tool_reward: float = 0.1
    length: Length = "none"
    held_out: float = 0.3
    shuffle_rewards: int | None = None

    @property
    def options(self) -> Options:
        """The part that is about credit."""
        return Options(**{option.name: getattr(self, option.name) for option in fields(Options)})

    @property
    def identity(self) -> str:
        """All that changes a transition whose inputs stay as they are."""
        return to_json(asdict(self) | {"idle": None, "version": VERSION})
