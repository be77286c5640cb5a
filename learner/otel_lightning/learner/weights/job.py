"""One training run: the arguments that all trainers get, and the call of the trainer."""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import datasets
import torch
import transformers
from transformers import (
    EarlyStoppingCallback,
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.settings import Row, Training
from otel_lightning.learner.weights.trainer.checkpoints import last_checkpoint
from otel_lightning.learner.weights.trainer.distributed import shared, world_size
from otel_lightning.learner.weights.trainer.load import precision
from otel_lightning.learner.weights.trainer.trl_overrides import in_row_order

EPOCHS, MIN_STEPS = 3.0, 60
"""How long is trained where neither --epochs nor --steps says."""
EVALUATIONS = 10
"""How often --stop-early measures the validation loss in one run."""

Record = Callable[[int, Mapping[str, float]], None]
"""Takes a step and its metrics."""


@dataclass(slots=True)
class Job:
    """A model to be trained, and how."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    training: Training
    learning_rate: float
    folder: Path
    """Where checkpoints are written."""
    max_length: int | None
    temperature: float = 1.0
    """Temperature with which the logged completions were sampled."""
    record: Record = lambda _, __: None
    rows: int = 0
    """Training rows, by which the number of steps is chosen."""
    measures: bool = False
    """Whether to measure the validation loss after training."""
    validation_loss: float = field(default=math.nan, init=False)
    best_step: int | None = field(default=None, init=False)
    """Step of the lowest validation loss, whose model was kept; None without --stop-early."""
    done: int = field(default=0, init=False)
    """Optimizer steps taken."""

    @property
    def pad_token(self) -> int:
        """The token id that fills short rows up."""
        return int(self.tokenizer.pad_token_id)

    @property
    def accumulate(self) -> int:
        """The number of parts that a batch is computed in."""
        return self.training.accumulate

    @property
    def packing(self) -> dict[str, Any]:
        """TRL arguments that put several short rows into one, if asked.

        Without packing no longest length: longer transitions were left out when they were read, and
        TRL would copy every row to cut none.
        """
        if not self.training.packing:
            return {"max_length": None}
        return {"max_length": self.max_length, "packing": True}

    def arguments(self, own: Mapping[str, Any], *, even: bool = False) -> dict[str, Any]:
        """Give the arguments of a TRL configuration.

        Args:
            own: The algorithm's own arguments.
            even: Whether the trainer takes only an even number of rows at a time.
        """
        training = self.training
        size = self._rows_per_device(even=even)
        common: dict[str, Any] = {
            "output_dir": str(self.folder),
            "learning_rate": self.learning_rate,
            "per_device_train_batch_size": size,
            "per_device_eval_batch_size": size,
            "gradient_accumulation_steps": training.accumulate,
            "warmup_steps": training.warmup,
            "seed": training.seed,
            "data_seed": training.seed,
            "bf16": precision(training.dtype, adapter=training.lora is not None).bf16,
            "activation_checkpointing": training.checkpointing,
            "torch_compile": training.compile,
            "dataloader_pin_memory": torch.cuda.is_available(),
            "logging_steps": 1,
            "logging_nan_inf_filter": False,  # a loss that is NaN has to be seen
            "report_to": list(training.report_to) or "none",
            "disable_tqdm": True,
            "use_cpu": not torch.accelerator.is_available(),
        }
        # The later ones win: the algorithm over the defaults, and the user's [trl] table over all.
        return common | self._length(size) | self._saving() | dict(own) | dict(training.trl)

    def _rows_per_device(self, *, even: bool) -> int:
        training, world = self.training, world_size()
        # At most as many rows as there are: with fewer, no whole batch could be made.
        batch_size = min(training.batch_size, max(self.rows, 1)) if even else training.batch_size
        parts = world * training.accumulate
        size = max(batch_size // parts, 1)
        # It wants batches of whole groups, and `offline_grpo` names two as the size of a group.
        if even and size % 2:
            size = max(size - 1, 2)
        if not even and size * parts != batch_size:
            raise DataError(
                f"--batch-size {batch_size} cannot be divided by {world} processes x --accumulate "
                f"{training.accumulate}. Choose a multiple of {parts}."
            )
        return size

    def _length(self, size: int) -> dict[str, Any]:
        """Give the number of steps or epochs."""
        training = self.training
        if training.steps is not None:
            return {"max_steps": training.steps}
        batch = size * world_size() * training.accumulate
        if training.epochs is not None:
            return {"num_train_epochs": training.epochs}
        # With few rows, three epochs are only a few steps, too few to learn from.
        return {"max_steps": max(math.ceil(EPOCHS * self.rows / batch), MIN_STEPS)}

    def _saving(self) -> dict[str, Any]:
        training = self.training
        if training.stop_early is not None:
            # A fraction below 1 means a share of all steps to transformers.
            every = 1 / EVALUATIONS
            return {
                "eval_strategy": "steps",
                "eval_steps": every,
                "save_strategy": "steps",
                "save_steps": every,
                # The best one, which is loaded at the end, and the last one, to resume from.
                "save_total_limit": 2,
                "load_best_model_at_end": True,
                "metric_for_best_model": "eval_loss",
            }
        if training.save_every == 0:
            return {"save_strategy": "no"}
        return {
            "save_strategy": "steps",
            "save_steps": training.save_every,
            "save_total_limit": 1,
        }

    def fit(
        self,
        trainer: type[Any],
        arguments: Any,
        train: Sequence[Row],
        validation: Sequence[Row],
        **options: Any,
    ) -> float:
        """Train the model in place.

        Args:
            trainer: A class of TRL, or one of `trl_overrides`.
            arguments: Its configuration.
            train: Rows to train on.
            validation: Rows to measure the validation loss by; may be empty.
            options: Other arguments of the trainer.

        Returns:
            The mean loss over training.

        Raises:
            DataError: If the loss became NaN.
        """
        evaluation = _dataset(validation, self.folder / "validation") if validation else None
        callbacks: list[TrainerCallback] = [_Curve(self)]
        if self.training.stop_early is not None:
            callbacks.append(EarlyStoppingCallback(self.training.stop_early))
        with _own_run_at_wandb():
            own_trainer = in_row_order(trainer)(
                model=self.model,
                args=arguments,
                train_dataset=_dataset(train, self.folder / "rows"),
                eval_dataset=evaluation,
                processing_class=self.tokenizer,
                callbacks=callbacks,
                **options,
            )
            # Progress is shown by our own callback; both of these would print beside it.
            own_trainer.remove_callback(PrinterCallback)
            own_trainer.remove_callback(ProgressCallback)
            checkpoint = last_checkpoint(self.folder) if self.training.resume else None
            loss = float(own_trainer.train(resume_from_checkpoint=checkpoint).training_loss)
            if self.training.stop_early is not None:
                self.best_step = own_trainer.state.best_global_step
            if self.measures and evaluation is not None:
                self.validation_loss = float(own_trainer.evaluate()["eval_loss"])
        # The trainer may have wrapped the model, and replaced it by its best checkpoint.
        self.model = own_trainer.accelerator.unwrap_model(own_trainer.model)
        # A probe with too high a learning rate may diverge: its validation loss tells.
        if not self.measures and not math.isfinite(loss):
            raise DataError(
                f"The loss became {loss} at learning rate {self.learning_rate:g}: training "
                "diverged. Lower --learning-rate, or look for one with --find-lr."
            )
        return loss

    def save(self, folder: Path) -> None:
        """Save the model, or its adapter, and its tokenizer, as transformers and PEFT load them."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


@contextmanager
def _own_run_at_wandb() -> Iterator[None]:
    """End the run at W&B that a trainer began, so that the next training begins one of its own.

    transformers leaves it open, and would go on with it.
    """

    def current() -> Any:
        # Imported by transformers, if at all.
        return getattr(sys.modules.get("wandb"), "run", None)

    before = current()
    try:
        yield
    finally:
        if before is None and (begun := current()) is not None:
            begun.finish()


def _dataset(rows: Sequence[Row], folder: Path) -> datasets.Dataset:
    """Make rows a dataset; several processes read it from one folder.

    DPO and KTO keep the logprobs of the model before learning beside the dataset: the main process
    writes them, and the others look for them there.
    """
    if world_size() == 1:
        return datasets.Dataset.from_list(list(rows))

    def written() -> str:
        # Left by a run that was killed.
        rmtree(folder, ignore_errors=True)
        datasets.Dataset.from_list(list(rows)).save_to_disk(folder)
        return str(folder)

    return datasets.load_from_disk(shared(written))


def quiet() -> None:
    """Hide the progress bars of the libraries: they would mix with ours and fill log files."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    datasets.disable_progress_bars()


class _Curve(TrainerCallback):
    """Shows the loss of each step, and hands all metrics on."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._progress: Progress | None = None

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the signature is the trainer's
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Report the step that was just logged."""
        # All processes get the same logs; only the main one writes the curve.
        if not logs or not state.is_world_process_zero:
            return
        numbers = {k: float(v) for k, v in logs.items() if isinstance(v, int | float | str)}
        self._job.done = state.global_step
        self._job.record(state.global_step, numbers)
        if "loss" in numbers:
            self._progress = self._progress or Progress("Learning", state.max_steps)
            self._progress.report(state.global_step, f"loss {numbers['loss']:.3f}")
