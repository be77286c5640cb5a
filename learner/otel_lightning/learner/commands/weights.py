"""`lightning-learn weights`."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import number_of, significant
from otel_lightning.learner.commands.common import (
    GIVEN_FILE,
    REFUSED,
    SEED,
    expected_errors,
    least_gain_option,
    option,
    report_verdict,
    reward_range_option,
    store_option,
)
from otel_lightning.learner.commands.values import Finite, FiniteNumber
from otel_lightning.learner.weights.algorithms import ALGORITHMS
from otel_lightning.learner.weights.trainer.distributed import is_main

if TYPE_CHECKING:
    from otel_lightning.learner.weights.train import Learned

POSITIVE = Finite(0, min_open=True)
DTYPES = ["auto", "float32", "bfloat16"]
LABELS = {
    "learned_from": "Training rows",
    "skipped": "Transitions left out",
    "logged_tokens": "Transitions with logged token ids",
    "rebuilt_tokens": "Transitions with token ids that were rebuilt from messages",
    "logged_logprobs": "Transitions with logged logprobs",
    "recomputed_logprobs": "Transitions whose logprobs were computed again",
    "processes": "Processes",
    "held_out_rebuilt_tokens": "Held-out transitions with rebuilt token ids",
    "held_out_left_out": "Held-out transitions without a computable importance weight",
    "logged_logprob_difference": "Difference between logged and computed logprobs, per token",
    "train_loss": "Training loss, mean over all steps",
    "good_token_logprob_before": "Logprob per token of good held-out completions, before",
    "good_token_logprob_after": "Logprob per token of good held-out completions, after",
    "kl_per_token": "KL divergence from the model before, per token",
    "best_step": "Step of the lowest validation loss, which was kept",
}
"""Name of each metric in the output; other names are printed as words."""
weights_option = partial(option, command="weights")
TRACKERS = ["trackio", "tensorboard", "mlflow", "wandb"]


@click.command(epilog=example("lightning-learn weights --model base-model --output learned-model"))
@store_option
@weights_option(
    "--algorithm",
    type=click.Choice(list(ALGORITHMS)),
    default="rft",
    help=" ".join(f"{name}: {summary}" for name, summary in ALGORITHMS.items()),
)
@weights_option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder of the model, or LoRA adapter, to train: the one whose completions were traced.",
)
@weights_option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder to write the fine-tuned model to.",
)
@weights_option(
    "--agent",
    metavar="NAME",
    help="Learn only from the calls of this agent. By default the calls of all agents count.",
)
@weights_option(
    "--each-agent",
    is_flag=True,
    help="Train one model per agent, each in a folder of its name in --output. By default there "
    "is one model for all.",
)
@weights_option(
    "--set",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the algorithm, such as beta=0.2; may be repeated. It overrides --settings. "
    "The error for an unknown NAME lists all settings.",
)
@weights_option(
    "--settings",
    type=GIVEN_FILE,
    help="TOML file with a table [algorithm] for the algorithm's settings, and a table [trl] for "
    "arguments of TRL's trainer.",
)
@weights_option(
    "--threshold",
    type=FiniteNumber(),
    default=0.0,
    help="A completion counts as good if its advantage is above this.",
)
@weights_option(
    "--learning-rate",
    type=POSITIVE,
    help="Highest learning rate, reached after warm-up.  [default: computed from the algorithm, "
    "the model's width and --lora]",
)
@weights_option(
    "--find-lr",
    is_flag=True,
    help="Train for 20 steps with each of five learning rates, then train with the one that has "
    "the lowest validation loss.",
)
@weights_option(
    "--epochs",
    type=POSITIVE,
    help="Number of passes over the training rows; use it instead of --steps.  [default: 3, but at "
    "least 60 steps]",
)
@weights_option(
    "--steps",
    type=click.IntRange(1),
    help="Number of optimizer steps.  [default: as many as 3 epochs take, but at least 60]",
)
@weights_option(
    "--batch-size",
    type=click.IntRange(1),
    default=16,
    help="Training rows per optimizer step, over all processes.",
)
@weights_option(
    "--accumulate",
    type=click.IntRange(1),
    default=1,
    help="Number of parts in which each batch is computed, one after the other; more parts need "
    "less memory.",
)
@weights_option(
    "--warmup",
    type=Finite(0, 1, max_open=True),
    default=0.03,
    help="Share of the steps, from 0 to below 1, over which the learning rate rises from 0.",
)
@weights_option(
    "--max-length",
    type=click.IntRange(2),
    help="Leave out transitions with more tokens than this.  [default: the model's context]",
)
@weights_option(
    "--packing",
    is_flag=True,
    help="Pack several short rows into one of --max-length tokens, for rft only. By default each "
    "row stays alone.",
)
@weights_option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="auto",
    help="Precision of training; auto is bfloat16 where the hardware supports it, and float32 "
    "elsewhere.",
)
@weights_option(
    "--lora",
    type=click.IntRange(1),
    metavar="RANK",
    help="Train a LoRA adapter of this rank. By default all weights are trained.",
)
@weights_option(
    "--four-bit",
    is_flag=True,
    help="Store the frozen weights in 4 bits (QLoRA), which needs less memory; requires --lora.",
)
@weights_option(
    "--checkpointing",
    is_flag=True,
    help="Compute activations twice instead of storing them: needs less memory, is about 20 % "
    "slower.",
)
@weights_option(
    "--compile",
    is_flag=True,
    help="Compile the model with torch.compile: a slower start, faster steps.",
)
@weights_option(
    "--save-every",
    type=click.IntRange(0),
    default=500,
    help="Optimizer steps between two checkpoints; 0 writes no checkpoints.",
)
@weights_option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted training with the same --output from its last checkpoint.",
)
@weights_option(
    "--stop-early",
    type=click.IntRange(1),
    metavar="N",
    help="Measure the validation loss 10 times during training, stop after N times without a "
    "lower one, and keep the best model. By default training runs to its end.",
)
@weights_option(
    "--report-to",
    type=click.Choice(TRACKERS),
    multiple=True,
    help="Send metrics to this tracker too; may be repeated. By default they are sent to none.",
)
@weights_option(
    "--clip",
    type=Finite(1),
    default=10.0,
    help="Clip the importance weight of each held-out rollout in the gate to at most this.",
)
@reward_range_option
@least_gain_option
@weights_option(
    "--shuffle-rewards",
    type=SEED,
    metavar="SEED",
    help="Negative control: permute the rewards of the training tasks with this seed, but not "
    "those of the gate. By default rewards stay where they are.",
)
@weights_option(
    "--seed",
    type=SEED,
    default=0,
    help="Seed of the order of training rows, of the adapter and of the bootstrap.",
)
def weights(store: str, algorithm: str, output: Path, **options: Any) -> None:
    """Fine-tune a model's weights on logged transitions, and test the result on held-out tasks."""
    agent, each = options.pop("agent"), options.pop("each_agent")
    refused = False
    with expected_errors():
        from otel_lightning.learner.weights.learn import agents, learn_weights

        training = _training(options)
        names, unnamed = agents(store) if each else ([agent], 0)
        if unnamed and is_main():
            count = number_of(unnamed, "transition names", "transitions name")
            click.echo(f"Warning: {count} no agent, so no model learns from them.", err=True)
        folders = {name: _folder(output, name, each=each) for name in names}
        for name, own_training in (
            _of_each(training, folders) if each else {agent: training}
        ).items():
            learned = learn_weights(store, algorithm, own_training, folders[name], name)
            if not is_main():
                continue
            # At once: the next agent may fail, or be killed.
            if each:
                click.echo(f"Agent {name}:")
            refused |= not print_learned(learned, folders[name])
    if refused:
        raise click.exceptions.Exit(REFUSED)


def _folder(output: Path, agent: str | None, *, each: bool) -> Path:
    """Name the folder of an agent's model; a name with a slash could lead out of `output`."""
    if not each or agent is None:
        return output
    if agent in {"", ".", ".."} or Path(agent).name != agent:
        raise click.ClickException(
            f"No folder can have the name of agent '{agent}'. Train each agent by --agent, with an "
            "--output of its own."
        )
    return output / agent


def _of_each(training: Any, folders: Mapping[str | None, Path]) -> dict[str | None, Any]:
    """Give the settings of each agent; with --resume of those that are not finished."""
    from otel_lightning.learner.errors import DataError
    from otel_lightning.learner.weights.trainer.checkpoints import (
        checkpoint_folder,
        last_checkpoint,
    )

    finished = {name for name, folder in folders.items() if folder.exists()}
    if finished and (not training.resume or len(finished) == len(folders)):
        raise DataError(
            f"'{folders[min(finished, key=str)]}' exists. Remove it, or choose another --output."
        )
    begun = {name for name in folders if last_checkpoint(checkpoint_folder(folders[name]))}
    # If nothing was begun, `resume` stays true for all, and the first one says so.
    resumed = begun if begun or finished else set(folders)
    return {
        name: replace(training, resume=training.resume and name in resumed)
        for name in folders
        if name not in finished
    }


def _training(options: dict[str, Any]) -> Any:
    """Combine the options; the command line wins over the settings file."""
    from otel_lightning.learner.weights.settings import (
        Training,
        read_assignments,
        read_settings_file,
    )

    path, assignments = options.pop("settings"), options.pop("set")
    trl, settings = read_settings_file(path) if path else ({}, {})
    return Training(trl=trl, algorithm=settings | read_assignments(assignments), **options)


def print_learned(learned: "Learned", folder: Path) -> bool:
    """Print the result of a training; return whether the gate passed."""
    for warning in learned.warnings:
        click.echo(f"Warning: {warning}", err=True)
    for name, value in learned.metrics.items():
        label = LABELS.get(name, name.replace("_", " ").capitalize())
        # No held-out rollout, or none of the kind that is measured.
        click.echo(f"{label}: {'not known' if math.isnan(value) else significant(value, 4)}")
    try:
        report_verdict(
            learned.verdict,
            "weights",
            passed=f"The fine-tuned model is in {folder}.",
            refused=f"The refused model is kept in {folder} for inspection.",
        )
    except click.exceptions.Exit:
        return False
    return True
