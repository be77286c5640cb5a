"""`lightning-learn weights`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.learner.commands.common import (
    FILE,
    REFUSED,
    expected_errors,
    option,
    report_verdict,
    store_option,
)
from otel_lightning.learner.commands.values import RangeOfRewards
from otel_lightning.learner.weights.algorithms import ALGORITHMS
from otel_lightning.learner.weights.distributed import is_main

if TYPE_CHECKING:
    from otel_lightning.learner.weights.train import Learned

POSITIVE = click.FloatRange(0, min_open=True)
DTYPES = ["auto", "float32", "bfloat16"]
weights_option = partial(option, command="weights")
TRACKERS = ["trackio", "tensorboard", "mlflow", "wandb"]


@click.command()
@store_option
@weights_option(
    "--algorithm",
    type=click.Choice(list(ALGORITHMS)),
    required=True,
    help=" ".join(f"{name}: {summary}" for name, summary in ALGORITHMS.items()),
)
@weights_option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder of the model, or of the adapter, that wrote the traces.",
)
@weights_option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder to make for the fine-tuned model.",
)
@weights_option("--agent", metavar="NAME", help="Learn from the calls of this agent only.")
@weights_option(
    "--each-agent",
    is_flag=True,
    help="Train one model for each agent, each into a folder of its name in --output.",
)
@weights_option(
    "--set",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the algorithm, for example beta=0.2; may be repeated.",
)
@weights_option(
    "--settings",
    type=FILE,
    help="TOML file with a table [algorithm] for its settings and [trl] for any TRL argument.",
)
@weights_option(
    "--threshold", type=float, default=0.0, help="A completion is good if its advantage is above."
)
@weights_option(
    "--learning-rate",
    type=POSITIVE,
    help="Highest learning rate, reached after warm-up.  [default: by algorithm, width and LoRA]",
)
@weights_option(
    "--find-lr",
    is_flag=True,
    help="Try five learning rates for 20 steps each, and train with the best.",
)
@weights_option("--epochs", type=POSITIVE, help="Times that each row is trained on.")
@weights_option(
    "--steps",
    type=click.IntRange(1),
    help="Optimizer steps.  [default: as many as 3 epochs take, but at least 60]",
)
@weights_option(
    "--batch-size", type=click.IntRange(1), default=16, help="Rows of one optimizer step."
)
@weights_option(
    "--accumulate",
    type=click.IntRange(1),
    default=1,
    help="Parts that a batch is computed in; more parts take less memory.",
)
@weights_option(
    "--warmup",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.03,
    help="Share of the steps over which the learning rate rises.",
)
@weights_option(
    "--max-length",
    type=click.IntRange(2),
    help="Leave out transitions of more tokens.  [default: the model's context]",
)
@weights_option(
    "--packing", is_flag=True, help="Put several short rows into one of --max-length (rft)."
)
@weights_option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="auto",
    help="Precision; auto is bfloat16 where the hardware has it, else float32.",
)
@weights_option(
    "--lora", type=click.IntRange(1), metavar="RANK", help="Train an adapter of this rank."
)
@weights_option(
    "--four-bit", is_flag=True, help="Keep frozen weights in 4 bits (QLoRA); needs --lora."
)
@weights_option(
    "--checkpointing",
    is_flag=True,
    help="Compute activations twice instead of keeping them: less memory, about 20 % slower.",
)
@weights_option("--compile", is_flag=True, help="Compile the model with torch.compile.")
@weights_option(
    "--save-every",
    type=click.IntRange(0),
    default=500,
    help="Optimizer steps between checkpoints; 0 writes none.",
)
@weights_option(
    "--resume", is_flag=True, help="Continue an interrupted training of the same --output."
)
@weights_option(
    "--stop-early",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N of 10 evaluations without a lower validation loss; keep the best model.",
)
@weights_option(
    "--report-to",
    type=click.Choice(TRACKERS),
    multiple=True,
    help="Also send metrics to this tracker; may be repeated.",
)
@weights_option(
    "--clip",
    type=click.FloatRange(1),
    default=10.0,
    help="Largest importance weight of a held-out rollout in the gate.",
)
@option("--reward-range", type=RangeOfRewards(), help="Least and greatest possible reward.")
@option("--least-gain", type=click.FloatRange(0), default=0.0, help="Gain to be shown at least.")
@weights_option(
    "--shuffle-rewards",
    type=int,
    metavar="SEED",
    help="Negative control: permute the rewards that are learned from, not those of the gate.",
)
@weights_option(
    "--seed", type=int, default=0, help="Seed of training order, adapter and bootstrap."
)
def weights(store: str, algorithm: str, output: Path, **options: Any) -> None:
    """Fine-tune a model's weights on logged transitions, and judge it on held-out tasks."""
    agent, each = options.pop("agent"), options.pop("each_agent")
    with expected_errors():
        from otel_lightning.learner.weights.learn import agents, learn_weights

        training = _training(options)
        names = agents(store) if each else [agent]
        learned = {}
        for name in names:
            folder = _folder(output, name, each=each)
            learned[name] = learn_weights(store, algorithm, training, folder, name)
    if is_main():
        _report(learned, {name: _folder(output, name, each=each) for name in learned})


def _folder(output: Path, agent: str | None, *, each: bool) -> Path:
    return output / agent if each and agent else output


def _training(options: dict[str, Any]) -> Any:
    """Gather the options; those of the command line win over those of the file."""
    from otel_lightning.learner.weights.settings import (
        Training,
        read_assignments,
        read_settings_file,
    )

    path, assignments = options.pop("settings"), options.pop("set")
    trl, settings = read_settings_file(path) if path else ({}, {})
    return Training(trl=trl, algorithm=settings | read_assignments(assignments), **options)


def _report(learned: dict[str | None, "Learned"], folders: dict[str | None, Path]) -> None:
    """Say what was learned; if a gate refused, end with the exit code of refusals."""
    refused = False
    for agent, result in learned.items():
        if len(learned) > 1:
            click.echo(f"Agent {agent}:")
        for warning in result.warnings:
            click.echo(f"Warning: {warning}", err=True)
        for name, value in result.metrics.items():
            click.echo(f"{name.replace('_', ' ').capitalize()}: {value:.4g}")
        try:
            report_verdict(
                result.verdict,
                passed=f"The fine-tuned model is in {folders[agent]}.",
                refused=f"The refused model is kept in {folders[agent]} for inspection.",
            )
        except click.exceptions.Exit:
            refused = True
    if refused:
        raise click.exceptions.Exit(REFUSED)
