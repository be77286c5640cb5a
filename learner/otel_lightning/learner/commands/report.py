"""`lightning-learn report`."""

from pathlib import Path

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.commands.common import FILE, expected_errors, option, store_option

MAX_SKIPPED_NAMED = 3
"""Skipped runs that are named, the newest first."""
ERROR_LENGTH = 200
"""Characters of the error of a skipped run."""


@click.command(epilog=example("lightning-learn report --run policy --output report.html"))
@store_option
@option(
    "--run",
    command="report",
    metavar="ID|policy|weights",
    help="Run to report on: its id, or the newest of policy or weights. Without an id, runs that "
    "failed before they learned are skipped.  [default: the newest]",
)
@option(
    "--output",
    command="report",
    type=FILE,
    default=Path("report.html"),
    help="The HTML file to write.",
)
@option(
    "--examples",
    command="report",
    type=click.IntRange(0, 100),
    default=0,
    help="Number of rollouts with the highest rewards, and as many with the lowest, to show with "
    "their text.",
)
def report(run: str | None, output: Path, examples: int, store: str) -> None:
    """Write one HTML file about a learning run: verdict, reasons, data, overlap, doubts.

    The file needs no other file, and the same store gives the same bytes.
    """
    from otel_lightning.learner.report.write import write_report

    with expected_errors():
        written = write_report(store, output, run=run, examples=examples)
    for run_id, error in list(written.skipped.items())[:MAX_SKIPPED_NAMED]:
        reason = " ".join(error.split())[:ERROR_LENGTH]
        click.echo(
            f"Skipped the newer run {run_id}, which failed: {reason or 'no error was recorded'} "
            f"(--run {run_id} reports on it)",
            err=True,
        )
    if (unnamed := len(written.skipped) - MAX_SKIPPED_NAMED) > 0:
        click.echo(f"Skipped {number_of(unnamed, 'more run')} that failed.", err=True)
    click.echo(
        f"Run {written.run_id} ({written.outcome}): the report is in {written.path} "
        f"({written.size / 1000:,.0f} kB)."
    )
