"""`lightning-learn loop`."""

from pathlib import Path

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.commands.common import FILE, REFUSED, expected_errors, store_option


@click.command(epilog=example("lightning-learn loop loop.toml"))
@click.argument("file", type=FILE)
@store_option
def loop(file: Path, store: str) -> None:
    """Run, grade, learn, judge and deploy, round after round, as FILE (a loop.toml) says.

    A loop that was killed goes on where it was: give the same command again.

    Exit codes: 0 something was promoted, 1 failed, 3 nothing was promoted.
    """
    with expected_errors():
        from otel_lightning.learner.loop.rounds import run_loop

        outcome = run_loop(file, Path(store), click.echo)
    if outcome.stopped:
        click.echo(f"Stopped after round {outcome.rounds}: {outcome.stopped}.")
    final = outcome.final
    count = number_of(final.get("tasks", 0), "final task, which was", "final tasks, which were")
    if "said" in final:
        click.echo(f"On {count} read only now: {final['said']}")
    elif "before_mean" in final:
        mean = final["before_mean"]
        click.echo(
            f"On {count} read only now: {decimal(mean)}. Nothing that is served has changed, so "
            "there is no second number."
        )
    for problem in outcome.problems:
        click.echo(problem, err=True)
    if not outcome.promoted:
        click.echo("Nothing was promoted: no candidate was better beyond chance.", err=True)
        raise click.exceptions.Exit(REFUSED)
