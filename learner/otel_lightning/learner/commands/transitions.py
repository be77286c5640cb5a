"""`lightning-learn transitions`."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import decimal, number_of
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
from otel_lightning.learner.commands.values import Finite, FiniteNumber
from otel_lightning.learner.credit.steps import CHOICES
from otel_lightning.learner.errors import DataError

if TYPE_CHECKING:
    from otel_lightning.learner.transitions.make import Summary

A_CENTURY = 100 * 365 * 24 * 60
"""In minutes: a time in nanoseconds overflows beyond about three centuries."""

CREDIT_HELP = (
    f"Method that turns rewards into advantages: {', '.join(credit.METHODS)}; or the sum of a "
    "method per rollout and a method per call, such as group+anchor_state."
)


def known_credit(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuse an unknown credit method as wrong usage (exit code 2)."""
    try:
        credit.validate(value)
    except DataError as error:
        raise click.BadParameter(str(error)) from error
    return value


def choice(name: str, default: str, text: str) -> Callable[[Command], Command]:
    """Declare an option for a credit setting that has a few allowed values."""
    allowed = click.Choice(get_args(CHOICES[name]))
    return option(f"--{name}", type=allowed, default=default, help=text)


@click.command(epilog=example("lightning-learn transitions --credit group --reward grade.py:right"))
@store_option
@reward_option
@option(
    "--agent",
    multiple=True,
    metavar="PATTERN",
    help="Learn only from the calls of agents with this name (* and ? are wildcards); may be "
    "repeated. By default all agents count.",
)
@option(
    "--idle",
    type=Finite(0, A_CENTURY),
    default=30.0,
    metavar="MINUTES",
    help="An open rollout without a call for this many minutes counts as truncated.",
)
@option("--credit", default="identical", metavar="METHOD", callback=known_credit, help=CREDIT_HELP)
@option(
    "--gamma",
    type=SHARE,
    default=1.0,
    help="Discount of later rewards per call, from 0 to 1; 1 discounts nothing.",
)
@option(
    "--lam",
    type=SHARE,
    default=0.95,
    help="Lambda of the method gae, from 0 (trust the estimated value) to 1 (trust the return).",
)
@choice(
    "value",
    "leave_one_out",
    "How the method gae estimates the value of a step: by the mean of the task's other rollouts, "
    "or by a line fitted to all of them.",
)
@choice(
    "baseline",
    "leave_one_out",
    "What the methods group and anchor_state compare with: the mean of the others in the group, "
    "or the mean of the whole group.",
)
@choice(
    "scale",
    "none",
    "What to divide the advantages of the methods group and anchor_state by: nothing, or the "
    "standard deviation of the group.",
)
@option(
    "--step-weight",
    type=FiniteNumber(),
    default=1.0,
    help="Weight of the second method in a sum of two, such as group+anchor_state.",
)
@option(
    "--tool-reward",
    type=FiniteNumber(),
    default=0.1,
    help="Reward of the method tool_outcome for each tool execution that succeeded; one that "
    "failed costs the same amount.",
)
@choice(
    "length",
    "none",
    "What to divide advantages by: nothing, so that each call has the same weight, or the number "
    "of calls of the rollout, so that each rollout has the same weight.",
)
@task_by_option
@held_out_option
@shuffle_option
@option(
    "--rebuild",
    command="transitions",
    is_flag=True,
    help="Build all transitions again. By default only those of changed tasks are built.",
)
def transitions(store: str, *, agent: tuple[str, ...], rebuild: bool, **settings: Any) -> None:
    """Build transitions, with rewards and advantages, from the stored rollouts."""
    with expected_errors():
        from otel_lightning.learner.transitions.make import Settings, make_transitions

        summary = make_transitions(store, Settings(agents=agent, **settings), rebuild=rebuild)
    report(summary)


def report(summary: "Summary") -> None:
    """Print how many transitions there are now, and how many were left out for which reason."""
    if summary.rule:
        click.echo(summary.rule)
    click.echo(
        f"{number_of(summary.transitions, 'transition')} from {summary.rewarded:,} of "
        f"{number_of(summary.rollouts, 'rollout')}; {summary.built:,} built in this run, the "
        "others had not changed.\n"
        f"Split by task, of {summary.tasks:,}: {number_of(summary.train, 'rollout')} to learn "
        "from, "
        f"{summary.heldout:,} held out."
    )
    if summary.mean_reward is not None:
        click.echo(f"Mean reward {decimal(summary.mean_reward)}.")
    for note in _what_is_missing(summary):
        click.echo(note)
    if summary.left_out:
        click.echo("\n".join(["Left out:", *_table(summary.left_out)]))


def _what_is_missing(summary: "Summary") -> Iterator[str]:
    """Say why nothing could be learned from these transitions, or nothing be judged."""
    if summary.rewarded and not summary.train:
        yield (
            "All tasks are held out, so there is nothing to learn from: collect rollouts of more "
            "tasks, or lower --held-out."
        )
    if summary.rewarded and not summary.heldout:
        yield (
            "No task is held out, so no gate could judge what is learned: collect rollouts of more "
            "tasks, or raise --held-out."
        )
    smallest = summary.least_advantage
    if summary.transitions > 1 and smallest is not None and smallest == summary.greatest_advantage:
        yield (
            f"All advantages are {smallest:g}, so nothing tells good calls from bad ones: collect "
            "rollouts that differ in their rewards (with a credit that compares, several of a "
            "task)."
        )


def _table(counts: Mapping[str, int]) -> list[str]:
    width = len(f"{max(counts.values()):,}")
    return [f"  {count:>{width},}  {what}" for what, count in counts.items()]
