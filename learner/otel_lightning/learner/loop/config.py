"""The settings of a loop, in the file `loop.toml`."""

import dataclasses
import math
import shlex
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from otel_lightning.learner.errors import DataError, MissingFileError
from otel_lightning.learner.evaluate.reward_range import check_failed_reward
from otel_lightning.learner.loop.ranges import outside
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

        The number of rounds, the stop rules and the hooks may change, what only speeds up, and the
        range of the rewards, which is a fact about them that may be learned late.
        Defaults are left out, so that a loop goes on after an upgrade that adds a setting.
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


def read_config(path: Path) -> Config:
    """Read a loop's file.

    Raises:
        DataError: If the file is no TOML, or a setting is unknown, missing or of the wrong kind.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingFileError(
            f"There is no file '{path}'. Write the loop's settings into it."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"'{path}' is not TOML: {error}.") from error
    config: Config = _part(Config, {"name": path.stem, **tables}, str(path), "")
    _check(config, path)
    _check_commands(config, path)
    return config


def required(part: Part | None) -> Part:
    """Return a part that the file must have, because the loop learns what it configures.

    Raises:
        DataError: If it is missing after all.
    """
    if part is None:
        raise DataError("A part of the loop's file is missing.")
    return part


def _check(config: Config, path: Path) -> None:
    kinds = config.learn.what
    for kind in kinds:
        if kind not in KINDS:
            raise DataError(f"{path}: [learn] what has '{kind}'. Known: {', '.join(KINDS)}.")
        if getattr(config, kind) is None:
            raise DataError(f"{path}: [learn] what has '{kind}', but there is no part [{kind}].")
    if not kinds:
        raise DataError(f"{path}: [learn] what is empty. Choose from: {', '.join(KINDS)}.")
    if not config.name or not all(c.isalnum() or c in "-_." for c in config.name):
        raise DataError(
            f"{path}: the name '{config.name}' may have letters, digits, - _ and . only."
        )
    if config.prompts and config.policy:
        prompts, policy = config.prompts, config.policy
        if (prompts.key, prompts.flags) != (policy.key, policy.flags):
            raise DataError(f"{path}: [prompts] and [policy] must name the same key and flags.")
    ways = [bool(config.run.command), bool(config.run.url), bool(config.run.serve)]
    if sum(ways) != 1:
        raise DataError(f"{path}: [run] needs one of command, url and serve.")
    for problem in outside(config):
        raise DataError(f"{path}: {problem}.")
    if config.gate.reward_range and not _is_range(config.gate.reward_range):
        raise DataError(f"{path}: [gate] reward_range must be two finite numbers, the least first.")
    names = ("[run] failed_reward", "[gate] reward_range")
    check_failed_reward(config.run.failed_reward, config.gate.range, names)


def _is_range(numbers: tuple[float, ...]) -> bool:
    return (
        len(numbers) == 2  # noqa: PLR2004 - the least and the greatest
        and numbers[0] < numbers[1]
        and math.isfinite(numbers[1] - numbers[0])
    )


def _check_commands(config: Config, path: Path) -> None:
    """Refuse a command that would fail only when its round needs it."""
    commands = {
        "[weights] serve": config.weights.serve if config.weights else None,
        "[hooks] after_round": config.hooks.after_round,
        "[hooks] after_loop": config.hooks.after_loop,
    }
    for name, command in commands.items():
        try:
            shlex.split(command or "")
        except ValueError as error:
            raise DataError(f"{path}: {name} cannot be split into words: {error}.") from error


def _part(kind: Any, values: dict[str, Any], path: str, section: str) -> Any:
    """Make a part of a table, and check the names and kinds of its settings."""
    hints, fields = get_type_hints(kind), {f.name: f for f in dataclasses.fields(kind)}
    section_name = f"[{section}]" if section else "the file"
    for name in values:
        if name not in fields:
            near = get_close_matches(name, fields, 1)
            hint = f" Did you mean '{near[0]}'?" if near else f" It has: {', '.join(fields)}."
            raise DataError(f"{path}: {section_name} has the unknown setting '{name}'.{hint}")
    for name, setting in fields.items():
        needed = (
            setting.default is dataclasses.MISSING
            and setting.default_factory is dataclasses.MISSING
        )
        if needed and name not in values:
            raise DataError(f"{path}: {section_name} lacks '{name}'.")
    return kind(
        **{
            n: _value(hints[n], v, path, f"{section}.{n}" if section else n)
            for n, v in values.items()
        }
    )


def _value(hint: Any, value: Any, path: str, section: str) -> Any:
    # `X | None` has two options; a value has to fit one of them.
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for option in options:
        if dataclasses.is_dataclass(option) and isinstance(value, dict):
            return _part(option, value, path, section)
        if option is Path and isinstance(value, str):
            return Path(value)
        # TOML's 1 is an int and fits a number; `true` does not, although Python calls it an int.
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if get_origin(option) is tuple and isinstance(value, list):
            inner = get_args(option)[0]
            return tuple(_value(inner, item, path, section) for item in value)
        if get_origin(option) is dict and isinstance(value, dict):
            return value
        # `type` and not isinstance: True is no whole number.
        if isinstance(option, type) and type(value) is option:
            return value
    names = " or ".join(_kind_name(option) for option in options if option is not type(None))
    raise DataError(f"{path}: '{section}' is {value!r}, but must be {names}.")


def _kind_name(option: Any) -> str:
    if dataclasses.is_dataclass(option) or get_origin(option) is dict:
        return "a table"
    if get_origin(option) is tuple:
        return "a list"
    return {
        str: "a text",
        Path: "a path",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
    }[option]


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
