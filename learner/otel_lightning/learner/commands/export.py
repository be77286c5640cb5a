"""`lightning-learn export`."""

from pathlib import Path
from typing import Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.commands.common import FILE, expected_errors, option, store_option
from otel_lightning.learner.commands.values import FiniteNumber

FORM = click.Choice(["trl-sft", "trl-dpo", "trl-kto", "trl-grpo", "verl", "openai", "transitions"])


@click.command(epilog=example("lightning-learn export --form trl-sft --output rows.jsonl"))
@store_option
@option(
    "--form",
    type=FORM,
    required=True,
    help="Format of the rows, named after the trainer that reads them.",
)
@option(
    "--output",
    command="export",
    type=FILE,
    required=True,
    help="File to write; the ending .parquet or .jsonl chooses the file format.",
)
@option(
    "--split",
    type=click.Choice(["train", "heldout", "all"]),
    default="train",
    help="Tasks to export: those to learn from, the held-out ones, or all.",
)
@option(
    "--threshold",
    command="export",
    type=FiniteNumber(),
    default=0.0,
    help="Export or label as good only completions whose advantage is above this; for trl-dpo, "
    "only pairs whose advantages differ by more than this.",
)
def export(store: str, form: str, output: Path, **settings: Any) -> None:
    """Write transitions to a file in the format that a trainer reads."""
    with expected_errors():
        from otel_lightning.learner.export.formats import FORMATS
        from otel_lightning.learner.export.write import export_transitions

        exported = export_transitions(store, FORMATS[form], output, **settings)
    click.echo(f"{number_of(exported.rows, 'row')} in {output}: {FORMATS[form].summary}.")
    if exported.shuffled is not None:
        click.echo(
            "Warning: the transitions were built with --shuffle-rewards "
            f"{exported.shuffled}, so the rewards in the file are those of other rollouts. Build "
            "the transitions again without it, unless the file is for a control.",
            err=True,
        )
    for reason, count in exported.left_out.items():
        click.echo(f"{count:,} left out: {reason}.")
    for dropped, count in exported.without.items():
        click.echo(f"{count:,} of them without {dropped}, which this format cannot hold.")
