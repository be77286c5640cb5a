"""`lightning-ingest show`."""

import os
from pathlib import Path

import click

from otel_lightning.collector.commands.options import STORE
from otel_lightning.collector.terminal.command_line import example, expected_errors


@click.command(epilog=example("lightning-ingest show last --errors"))
@STORE
@click.argument("rollouts", nargs=-1)
@click.option("--steps", metavar="STEPS", envvar="LIGHTNING_SHOW_STEPS",
              help="Steps to show, from 0: 3, 3-5, 3- or -5.  [default: all]")  # fmt: skip
@click.option("--all", "whole", is_flag=True, envvar="LIGHTNING_SHOW_ALL",
              help="Show the whole history of each step, and long texts uncut.")  # fmt: skip
@click.option("--errors", "only_errors", is_flag=True, envvar="LIGHTNING_SHOW_ERRORS",
              help="Show only steps that failed, were cut off or called a tool that failed."
              )  # fmt: skip
@click.option("--follow", is_flag=True, envvar="LIGHTNING_SHOW_FOLLOW",
              help="Wait for new steps until Ctrl+C.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, envvar="LIGHTNING_SHOW_JSON",
              help="Print each rollout as one line of JSON.")  # fmt: skip
@click.option("--width", type=click.IntRange(min=40), envvar="LIGHTNING_SHOW_WIDTH",
              help="Characters of a line.  [default: the terminal's, or 100]")  # fmt: skip
@click.option("--no-pager", is_flag=True, envvar="LIGHTNING_NO_PAGER",
              help="Print a long answer at once, also on a terminal.")  # fmt: skip
def show(  # noqa: PLR0913  click passes each option
    *,
    rollouts: tuple[str, ...],
    steps: str | None,
    whole: bool,
    only_errors: bool,
    follow: bool,
    as_json: bool,
    width: int | None,
    no_pager: bool,
    store: Path,
) -> None:
    """Show rollouts: the new messages of each step, tools, rewards and credit.

    ROLLOUTS are ids or their beginnings, trace ids, response ids, `last` (the default) for the
    newest one, or `-` to read ids from a pipe.
    """
    from otel_lightning.collector.show.print_rollouts import (
        ShowOptions,
        parse_steps,
        print_rollouts,
        text_style,
    )
    from otel_lightning.collector.show.rollout import Window

    try:
        first, last = parse_steps(steps)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    window = Window(first, last, only_errors=only_errors, whole_history=whole)
    in_color = "NO_COLOR" not in os.environ
    options = ShowOptions(
        store,
        rollouts,
        window,
        text_style(width, in_color=in_color, cut=not whole),
        as_json=as_json,
        follow=follow,
        pager=not no_pager,
    )
    with expected_errors():
        print_rollouts(options)
