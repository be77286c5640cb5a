"""The settings of a loop; `config_file.py` reads them from the file `loop.toml`."""

import dataclasses
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.runs import to_json

Part = TypeVar("Part")
PROMPTS, POLICY, WEIGHTS = "prompts", "policy", "weights"
KINDS = (PROMPTS, POLICY, WEIGHTS)
"""The kinds that a loop can learn, in the order of a round."""


@dataclass(frozen=True, slots=True)
class RunPart:
    """`[run]`: the agent, its tasks and its grader, as `lightning-learn run` takes them."""

    tasks: Path
    command: tuple[str, ...] = ()
    url: str | None = None
    serve: tuple[str, ...] = ()
    samples: int = 1
    jobs: int = 2
    timeout: float = 300.0
    retries: int = 2
    stdin: str = "json"
    seed: int = 0
    grade: str | None = None
    grade_command: tuple[str, ...] = ()
    exit_code_is_reward: bool = False
    failed_reward: float | None = None
    reward: str | None = None


@dataclass(frozen=True, slots=True)
class LearnPart:
    """`[learn]`: what is learned, how often."""

    rounds: int = 3
    what: tuple[str, ...] = (PROMPTS,)
    credit: str = "identical"
    agents: tuple[str, ...] = ()
    """Patterns for the names of the agents to learn from; by default all."""


@dataclass(frozen=True, slots=True)
class SplitPart:
    """`[split]`: shares of the tasks that learning never sees."""

    held_out: float = 0.3
    """Share of the tasks that the gate judges by, of those that are not for the final report."""
    final: float = 0.2
    """Share of the tasks that only the last report reads."""


@dataclass(frozen=True, slots=True)
class GatePart:
    """`[gate]`: the requirements on a winner."""

    samples: int = 2
    """Rollouts of each arm on each held-out task."""
    alpha: float = 0.05
    """Error probability of the whole loop; each round spends a part of it."""
    least_gain: float = 0.0
    reward_range: tuple[float, ...] = ()
    """Least and greatest possible reward; needed unless all rewards are 0 or 1."""

    @property
    def range(self) -> tuple[float, float] | None:
        """Least and greatest possible reward, if they are given."""
        return (self.reward_range[0], self.reward_range[1]) if self.reward_range else None


@dataclass(frozen=True, slots=True)
class PromptsPart:
    """`[prompts]`: the flag and the model that writes prompts, as `lightning-learn prompts`."""

    key: str
    flags: Path
    endpoint: str
    model: str
    candidates: int = 3
    share: float = 0.1
    records: int = 24
    failed_below: float | None = None
    max_length: int = 4000
    max_prompt: int = 60_000
    max_arms: int = 6
    temperature: float = 1.0
    concurrency: int = 8
    retries: int = 5
    timeout: float = 300.0


@dataclass(frozen=True, slots=True)
class PolicyPart:
    """`[policy]`: the flag whose shares are learned, as `lightning-learn policy`."""

    key: str
    flags: Path
    exploration: float = 0.1
    kl_weight: float = 0.05


@dataclass(frozen=True, slots=True)
class WeightsPart:
    """`[weights]`: the model that is fine-tuned, and how it is served."""

    model: Path
    serve: str
    """Command that serves a model; `{model}` is replaced by its folder."""
    ready: str
    """URL that answers with 200 once the model is served."""
    output: Path = Path("models")
    """Folder of the fine-tuned models, one for each round."""
    algorithm: str = "rft"
    ready_seconds: float = 300.0
    settings: dict[str, Any] = field(default_factory=dict)
    """Other options of `lightning-learn weights`, such as `steps` and `lora`."""


@dataclass(frozen=True, slots=True)
class StopPart:
    """`[stop]`: when no further round begins."""

    rollouts: int | None = None
    hours: float | None = None
    no_gain_rounds: int | None = None


@dataclass(frozen=True, slots=True)
class HooksPart:
    """`[hooks]`: commands that get JSON on standard input."""

    after_round: str | None = None
    after_loop: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A loop."""

    name: str
    run: RunPart
    learn: LearnPart = field(default_factory=LearnPart)
    split: SplitPart = field(default_factory=SplitPart)
    gate: GatePart = field(default_factory=GatePart)
    prompts: PromptsPart | None = None
    policy: PolicyPart | None = None
    weights: WeightsPart | None = None
    stop: StopPart = field(default_factory=StopPart)
    hooks: HooksPart = field(default_factory=HooksPart)

    @property
    def flag(self) -> "PromptsPart | PolicyPart | None":
        """The flag whose variants are learned, if the loop learns one."""
        return self.prompts or self.policy

    @property
    def identity(self) -> str:
        """Hash of all settings that may not change while a loop goes on.

        These may change: the number of rounds, the stop rules, the hooks, settings that change only
        the speed, and the range of the rewards, a fact that a user may learn late. Defaults are
        left out, so that a loop goes on after an upgrade that adds a setting.
        """
        # Only what differs from the defaults: so a setting that a later release adds changes
        # nothing.
        gate = dataclasses.replace(self.gate, reward_range=())
        differing = _differing(dataclasses.replace(self, gate=gate))
        for part, names in FREE.items():
            values = differing.pop(part, {})
            if names:
                differing[part] = {k: v for k, v in values.items() if k not in names}
        return sha256(to_json(_plain(differing)).encode()).hexdigest()[:16]


FREE: dict[str, frozenset[str]] = {
    "run": frozenset({"jobs", "timeout", "retries"}),
    "learn": frozenset({"rounds"}),
    "stop": frozenset(),
    "hooks": frozenset(),
}
"""Settings that may change while a loop goes on; an empty set frees the whole part."""


def required(part: Part | None) -> Part:
    """Return a part that the file must have, because the loop learns what it configures.

    Raises:
        DataError: If it is missing after all.
    """
    if part is None:
        raise DataError("A part of the loop's file is missing.")
    return part


def _differing(part: Any) -> dict[str, Any]:
    """Return the settings of a part that are not its defaults, its own parts included."""
    differing = {}
    for setting in dataclasses.fields(part):
        value = getattr(part, setting.name)
        if dataclasses.is_dataclass(value):
            differing[setting.name] = _differing(value)
        elif value != setting.default and not (
            setting.default_factory is not dataclasses.MISSING
            and value == setting.default_factory()
        ):
            differing[setting.name] = value
    return {name: value for name, value in differing.items() if value != {}}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
