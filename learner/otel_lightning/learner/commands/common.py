"""What the commands share: options, and errors that a user can mend."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_lightning.collector import command_line

if TYPE_CHECKING:
    from otel_lightning.learner.evaluate.gate import Verdict

REFUSED = 3
"""The exit code when the gate said no."""
SHARE = click.FloatRange(0, 1)
FILE = click.Path(path_type=Path, dir_okay=False)

Command = command_line.Command
option = command_line.option

store_option = option("--store", default="traces.duckdb", help="The DuckDB file.")
reward_option = option(
    "--reward", metavar="NAME|RULE", help="Learn from these rewards only: a name, or a rule's file."
)
held_out_option = option("--held-out", type=SHARE, default=0.3, help="Share of tasks to judge by.")
task_by_option = option(
    "--task-by",
    type=click.Choice(["user", "prompt", "id"]),
    default="user",
    help="What names the task of a rollout without a task id: the user's messages in its first "
    "call, its whole first prompt, or nothing, so that it is a task of its own.",
)
shuffle_option = option(
    "--shuffle-rewards", type=int, metavar="SEED", help="Negative control: permute rewards."
)


@contextmanager
def expected_errors() -> Iterator[None]:
    """Turn errors that a user can mend into one sentence; others keep their traceback."""
    from otel_lightning.collector.store import StoreError
    from otel_lightning.learner.errors import DataError

    try:
        yield
    except (DataError, StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


def report_verdict(verdict: "Verdict", passed: str, refused: str) -> None:
    """Print the gate's measurements and its answer; a refusal ends with its own exit code."""
    click.echo(
        f"Held out: {verdict.rollouts} rollouts of {verdict.tasks} tasks. Value "
        f"{verdict.behavior_value:.4f} live, {verdict.value:.4f} learned ({verdict.estimator}): "
        f"gain {verdict.gain:+.4f}; with 95 % confidence each (one-sided) at least "
        f"{verdict.lower:+.4f}, at most {verdict.upper:+.4f}."
    )
    click.echo(
        "To the new policy these rollouts are worth "
        f"{verdict.effective_sample_size:.1f} of its own (effective sample size); its mean "
        f"importance weight is {verdict.mean_weight:.2f}."
    )
    if verdict.passed:
        click.echo(f"The gate passed. {passed}")
        return
    click.echo(f"The gate refused: {'; '.join(verdict.refusals)}. {refused}", err=True)
    click.echo(f"To pass: {what_would_pass(verdict)}", err=True)
    raise click.exceptions.Exit(REFUSED)


def what_would_pass(verdict: "Verdict") -> str:
    """Say how many more tasks the gate would be expected to need."""
    if verdict.tasks_needed is None or not verdict.gain > verdict.least_gain:
        return (
            "the held-out rollouts show no gain to confirm, so more of the same would not do it; "
            "try other arms, or learn again when there is more data."
        )
    more = max(0, math.ceil(verdict.tasks_needed) - verdict.tasks)
    if more == 0:
        return "mend what the reasons name; the number of held-out tasks would do."
    return (
        f"about {more} more held-out tasks like these, if the gain is what it looks like "
        f"({verdict.gain:+.4f})."
    )
