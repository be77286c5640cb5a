"""`lightning-learn transitions`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from otel_lightning.learner import credit
from otel_lightning.learner.commands.common import (
    SHARE,
    Command,
    expected_errors,
    held_out_option,
    option,
    reward_option,
    shuffle_option,
    store_option,
    task_by_option,
)
from otel_lightning.learner.credit.steps import CHOICES
from otel_lightning.learner.errors import DataError

if TYPE_CHECKING:
    from otel_lightning.learner.transitions.make import Summary

CREDIT_HELP = (
    f"Rewards to advantages: {', '.join(credit.METHODS)}; or a method of rollouts and one of steps "
    "added up, as in group+anchor_state."
)


def known_credit(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuse a credit method that there is not, as wrong usage."""
    try:
        credit.validate(value)
    except DataError as error:
        raise click.BadParameter(str(error)) from error
    return value


def choice(name: str, default: str, text: str) -> Callable[[Command], Command]:
    """Declare an option for a credit setting that has a few allowed values."""
    allowed = click.Choice(get_args(CHOICES[name]))
    return option(f"--{name}", type=allowed, default=default, help=text)


@click.command()
@store_option
@reward_option
@option(
    "--agent",
    multiple=True,
    metavar="PATTERN",
    help="Learn from agents of this name only (* and ? match); may be repeated.",
)
@option(
    "--idle",
    type=click.FloatRange(0),
    default=30.0,
    metavar="MINUTES",
    help="An open rollout without a call for so long counts as cut off.",
)
@option("--credit", default="identical", metavar="METHOD", callback=known_credit, help=CREDIT_HELP)
@option("--gamma", type=SHARE, default=1.0, help="Discount per call.")
@option("--lam", type=SHARE, default=0.95, help="gae: 0 trusts the value, 1 trusts the return.")
@choice("value", "leave_one_out", "gae: where the value of a step comes from.")
@choice("baseline", "leave_one_out", "Groups: the mean of the others, or of all.")
@choice("scale", "none", "Groups: divide by nothing, or by the standard deviation.")
@option("--step-weight", type=float, default=1.0, help="Weight of the second of two methods.")
@option("--tool-reward", type=float, default=0.1, help="tool_outcome: reward of a tool's success.")
@choice("length", "none", "Weigh each call as one, or the calls of a rollout together.")
@task_by_option
@held_out_option
@shuffle_option
@option(
    "--rebuild",
    command="transitions",
    is_flag=True,
    help="Build all again, not only tasks with news.",
)
def transitions(store: str, *, agent: tuple[str, ...], rebuild: bool, **settings: Any) -> None:
    """Turn stored rollouts into rewarded transitions."""
    with expected_errors():
        from otel_lightning.learner.transitions.make import Settings, make_transitions

        summary = make_transitions(store, Settings(agents=agent, **settings), rebuild=rebuild)
    report(summary)


def report(summary: "Summary") -> None:
    """Say what the transitions are now, and what is left out for which reason."""
    if summary.rule:
        click.echo(summary.rule)
    click.echo(
        f"{summary.transitions} transitions from {summary.rewarded} of {summary.rollouts} "
        f"rollouts; {summary.built} built, the others had no news.\n"
        f"Split by task, of {summary.tasks}: {summary.train} rollouts to learn from, "
        f"{summary.heldout} held out."
    )
    if summary.mean_reward is not None:
        click.echo(f"Mean reward {summary.mean_reward:.4f}.")
    if summary.left_out:
        click.echo("\n".join(["Left out:", *_table(summary.left_out)]))


def _table(counts: Mapping[str, int]) -> list[str]:
    width = len(str(max(counts.values())))
    return [f"  {count:>{width}}  {what}" for what, count in counts.items()]
