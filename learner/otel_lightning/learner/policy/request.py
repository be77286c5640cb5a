"""The request to learn a policy."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.reward_range import Range
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.policy.softmax.choice_arrays import Settings


@dataclass(frozen=True, slots=True)
class Request:
    """The policy to learn, the data to learn from, and the files to read and write."""

    key: str
    flags: Path
    output: Path
    reward: str | None = None
    held_out: float = 0.3
    shuffle_rewards: int | None = None
    task_by: str = "user"
    since: datetime | None = None
    until: datetime | None = None
    missing: str | None = None
    propensities: str = "auto"
    reward_range: Range | None = None
    least_gain: float = 0.0
    alpha: float = ALPHA
    """Error probability of the gate."""
    promote: bool = False
    features: Path | None = None
    """TOML file of features; None learns a policy without features."""
    settings: Settings = field(default_factory=Settings)
    run_id: str | None = None
    """Id of the run and version of the policy; rows of a run that was killed are replaced. None
    makes a new id."""

    @property
    def window(self) -> Window:
        """The logged choices to read."""
        worst = self.reward_range[0] if self.reward_range else None
        return Window(
            key=self.key,
            reward=self.reward,
            held_out=self.held_out,
            since=self.since,
            until=self.until,
            missing=self.missing,
            worst=worst,
            propensities=self.propensities,
            shuffle_rewards=self.shuffle_rewards,
            task_by=self.task_by,
        )
