"""Settings of training that all algorithms share. Nothing here imports torch."""

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from otel_lightning.learner.errors import DataError

Row = dict[str, Any]
"""One training row, with the columns that the algorithm's trainer reads."""

SHARDING = ("fsdp", "fsdp_config", "deepspeed", "parallelism_config")
"""Arguments of transformers that divide a model among processes."""
SHARDING_VARIABLES = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
"""Variables by which `accelerate launch` asks for the same."""
OURS = frozenset({"output_dir", "max_steps", "num_train_epochs", "seed", "data_seed"})
"""TRL arguments that only our own options set."""


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of training that all algorithms share."""

    model: Path
    learning_rate: float | None = None
    """Highest learning rate; None for the default of `trainer/learning_rate.py`."""
    epochs: float | None = None
    steps: int | None = None
    """Optimizer steps; without steps and epochs, 3 epochs but at least 60 steps."""
    batch_size: int = 16
    """Rows of one optimizer step, over all processes and accumulated parts."""
    accumulate: int = 1
    """Parts that a batch is computed in."""
    warmup: float = 0.03
    """Share of the steps over which the learning rate rises."""
    max_length: int | None = None
    packing: bool = False
    dtype: str = "auto"
    lora: int | None = None
    """Rank of the adapter; None trains all weights."""
    four_bit: bool = False
    checkpointing: bool = False
    compile: bool = False
    save_every: int = 500
    """Steps between checkpoints; 0 for none."""
    resume: bool = False
    stop_early: int | None = None
    """Evaluations without a lower validation loss after which training ends."""
    report_to: tuple[str, ...] = ()
    threshold: float = 0.0
    """Advantage above which a completion is good, for the algorithm and for the gate."""
    clip: float = 10.0
    least_gain: float = 0.0
    """The lower bound of the gain must exceed this, in units of the reward."""
    reward_range: tuple[float, float] | None = None
    """Least and greatest possible reward; None takes those that were logged, and 0 and 1."""
    seed: int = 0
    shuffle_rewards: int | None = None
    find_lr: bool = False
    trl: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of TRL's trainer, which override ours."""
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the algorithm."""

    def __post_init__(self) -> None:
        """Refuse options that contradict each other, before anything is loaded.

        Raises:
            DataError: If two options cannot be had together, or a tracker is not installed.
        """
        if self.four_bit and self.lora is None:
            raise DataError(
                "--four-bit freezes the weights, so it needs an adapter to train: add --lora 16."
            )
        if self.steps is not None and self.epochs is not None:
            raise DataError("Give --steps or --epochs, not both.")
        if sharded := _sharding(self.trl):
            raise DataError(
                f"{sharded} divides a model among GPUs, which cannot be judged: the gate needs the "
                "whole model on each GPU. Leave it out; for less memory train an adapter with "
                "--lora 16, if need be with --four-bit, or add --checkpointing."
            )
        if self.packing and self.max_length is None:
            raise DataError("--packing fills rows up to a length. Give it with --max-length.")
        for tracker in self.report_to:
            # A folder of that name, such as the one that wandb writes, is found as well, but has
            # no origin.
            if (spec := find_spec(tracker)) is None or spec.origin is None:
                raise DataError(
                    f"--report-to {tracker} needs its package. Install it with: "
                    f"pip install {tracker}"
                )

    @property
    def needs_validation(self) -> bool:
        """Whether a part of the training tasks only measures the loss."""
        return self.stop_early is not None or self.find_lr

    def as_config(self, name: str) -> dict[str, Any]:
        """Write the settings as they are kept with a run."""
        return dataclasses.asdict(self) | {
            "algorithm": name,
            "algorithm_settings": dict(self.algorithm),
            "model": str(self.model),
        }


def _sharding(trl: Mapping[str, Any]) -> str | None:
    """Name the setting or variable that divides a model among processes, if there is one."""
    for name in SHARDING:
        if trl.get(name):
            return f"'{name}' in [trl]"
    for name in SHARDING_VARIABLES:
        if os.environ.get(name, "").lower() in {"1", "true", "yes"}:
            return f"The variable {name}"
    return None


def read_settings_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a TOML file of settings.

    Returns:
        The tables `[trl]`, arguments of TRL's trainer, and `[algorithm]`, the algorithm's own.

    Raises:
        DataError: If the file is no TOML, or has other tables.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"'{path}' is not TOML: {error}.") from None
    if unknown := tables.keys() - {"trl", "algorithm"}:
        raise DataError(
            f"'{path}' has '{min(unknown)}'; only the tables [trl] and [algorithm] are read."
        )
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise DataError(f"'{path}': '{name}' must be a table, [{name}], with its own settings.")
    trl = tables.get("trl", {})
    if fixed := trl.keys() & OURS:
        raise DataError(f"'{path}' sets '{min(fixed)}' in [trl]: use the command's own option.")
    return trl, tables.get("algorithm", {})


def read_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Read `NAME=VALUE` as the TOML value it is, or else as text.

    Raises:
        DataError: If there is no `=`.

    Example:
        >>> read_assignments(["beta=0.2", "normalize=true", "loss=grpo"])
        {'beta': 0.2, 'normalize': True, 'loss': 'grpo'}
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator:
            raise DataError(f"'{assignment}' is no NAME=VALUE, for example beta=0.2.")
        try:
            # TOML tells numbers, booleans and lists from text; what it refuses is text without
            # quotes.
            values[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name.strip()] = text.strip()
    return values


def algorithm_settings(kind: type[Any], name: str, training: Training) -> Any:
    """Fill in an algorithm's settings; `--threshold` reaches those that have a threshold.

    Raises:
        DataError: If the algorithm has no such setting, or the value is of another kind.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}
    values = dict(training.algorithm)
    if unknown := values.keys() - fields.keys():
        settings = ", ".join(f"{f.name}={f.default}" for f in fields.values()) or "none"
        raise DataError(f"{name} has no setting '{min(unknown)}'. Its settings: {settings}.")
    for setting, value in values.items():
        default = fields[setting].default
        # `type` and not `isinstance`, because True is an int too.
        if isinstance(default, float) and type(value) is int:
            values[setting] = float(value)
        elif type(value) is not type(default):
            raise DataError(
                f"{name}'s setting '{setting}' is {value!r}, but must be of the kind of its "
                f"default, {default!r}."
            )
    if "threshold" in fields:
        values.setdefault("threshold", training.threshold)
    return kind(**values)
