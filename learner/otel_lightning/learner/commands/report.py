"""`lightning-learn report`."""

from pathlib import Path

import click

from otel_lightning.learner.commands.common import FILE, expected_errors, option, store_option


@click.command()
@option(
    "--run",
    command="report",
    metavar="ID|policy|weights",
    help="Run to report on: its id, or the newest of policy or weights.  [default: the newest]",
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
    help="Rollouts to show that did best, and as many that did worst, with their text.",
)
@store_option
def report(run: str | None, output: Path, examples: int, store: str) -> None:
    """Write one HTML file about a learning run: verdict, reasons, data, overlap, doubts.

    The file needs no other file, and the same store gives the same bytes.
    """
    from otel_lightning.learner.report.write import write_report

    with expected_errors():
        written = write_report(store, output, run=run, examples=examples)
    click.echo(
        f"Run {written.run_id} ({written.outcome}): the report is in {written.path} "
        f"({written.size / 1000:,.0f} kB)."
    )
