"""`lightning-learn weights`."""

from pathlib import Path
from typing import Any

import click

from otel_lightning.learner.commands.common import (
    expected_errors,
    option,
    report_verdict,
    store_option,
)
from otel_lightning.learner.weights.algorithms import ALGORITHMS
from otel_lightning.learner.weights.algorithms import Settings as WeightSettings


@click.command()
@store_option
@option(
    "--algorithm",
    type=click.Choice(list(ALGORITHMS)),
    required=True,
    help=" ".join(f"{name}: {summary}" for name, summary in ALGORITHMS.items()),
)
@option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder of the model that wrote the traces.",
)
@option(
    "--output",
    command="weights",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder to make for the fine-tuned model.",
)
@option(
    "--threshold",
    command="weights",
    type=float,
    default=0.0,
    help="Learn from advantages above this.",
)
@option("--learning-rate", type=click.FloatRange(0, min_open=True), default=1e-5, help="Peak.")
@option("--steps", type=click.IntRange(1), default=60, help="Optimizer steps.")
@option("--batch-size", type=click.IntRange(1), default=16, help="Transitions a step.")
@option("--clip", type=click.FloatRange(1), default=10.0, help="Largest importance weight.")
@option(
    "--seed",
    command="weights",
    type=int,
    default=0,
    help="Of the order of training and of the bootstrap.",
)
def weights(store: str, algorithm: str, output: Path, **settings: Any) -> None:
    """Fine-tune a model's weights on what earned a reward."""
    with expected_errors():
        from otel_lightning.learner.weights.learn import learn_weights

        learned = learn_weights(store, algorithm, WeightSettings(**settings), output)
    for name, value in learned.metrics.items():
        click.echo(f"{name.replace('_', ' ').capitalize()}: {value:.4g}")
    report_verdict(
        learned.verdict,
        passed=f"The fine-tuned model is in {output}.",
        refused=f"The refused model is kept in {output} for inspection.",
    )
