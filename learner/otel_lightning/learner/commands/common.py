"""Options, error handling and reports that several commands share."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from otel_lightning.collector.files.links import followed
from otel_lightning.collector.terminal import command_line
from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.commands.values import Finite, RangeOfRewards, Since

if TYPE_CHECKING:
    from otel_lightning.learner.evaluate.gate import Verdict

REFUSED = 3
"""Exit code when the gate refused a candidate."""
SHARE = Finite(0, 1)
SEED = click.IntRange(0, 2**32 - 1)  # what NumPy takes
FILE = click.Path(path_type=Path, dir_okay=False)
GIVEN_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
"""A file that a command reads."""
SOURCE = click.Choice(["auto", "trace", "version", "frequencies", "random"])

Command = command_line.Command
option = command_line.option

store_option = option(
    "--store",
    metavar="FILE",
    default="traces.duckdb",
    callback=lambda _context, _option, path: str(followed(Path(path))),
    help="The DuckDB file.",
)
key_option = option(
    "--key", metavar="KEY", required=True, help="Key of the flag whose variants are the arms."
)
flags_option = option(
    "--flags", type=FILE, required=True, help="The flagd flag file that serves the arms."
)
reward_option = option(
    "--reward",
    metavar="NAME|RULE",
    help="Use the rewards of this name only, or those that this rule gives (FILE.py:FUNCTION, "
    "FILE.sql or FILE.toml). By default all received rewards count, but none that a rule or a "
    "judge gave.",
)
reward_range_option = option(
    "--reward-range",
    type=RangeOfRewards(),
    help="Least and greatest possible reward, such as 0,1. By default it is the range of the "
    "logged rewards; then each gate refuses unless all rewards are 0 or 1.",
)
least_gain_option = option(
    "--least-gain",
    type=Finite(0),
    default=0.0,
    help="The gate passes only if the lower bound of the gain, in units of reward, is above this.",
)
missing_option = option(
    "--missing",
    metavar="worst|drop|VALUE",
    help="What to do with rollouts without a reward: give them the worst reward or this VALUE, or "
    "drop them. By default the command fails if one arm has more such rollouts than another, "
    "beyond chance; if not, learning leaves them out, and the gate assumes the worst rewards for "
    "them.",
)
propensities_option = option(
    "--propensities",
    type=SOURCE,
    default="auto",
    help="Source of the propensities: the trace, the shares of the policy version that the trace "
    "names, or the frequency of each arm under its version. auto takes the trace, and the version "
    "where the trace has none. frequencies is refused if the task, the time, the service or the "
    "words of the input predict the arm; random takes the frequencies without this test, for arms "
    "that were drawn at random.",
)
since_option = option(
    "--since",
    type=Since(),
    help="Leave out choices made before this time (UTC), such as 2026-11-01, or longer ago than "
    "this, such as 7d. By default no choice is too old.",
)
until_option = option(
    "--until",
    type=Since(),
    help="Leave out choices made at this time (UTC) or later, such as 2026-11-01 or 7d (7 days "
    "ago). By default no choice is too new.",
)
held_out_option = option(
    "--held-out",
    type=SHARE,
    default=0.3,
    help="Share of the tasks, from 0 to 1, that are held out: learning does not use them, and the "
    "gate uses only them.",
)
task_by_option = option(
    "--task-by",
    type=click.Choice(["user", "prompt", "id"]),
    default="user",
    help="How to find the task of a rollout without a task id: by the user's messages in its "
    "first call (user) or by the whole first prompt (prompt), which are equal in rollouts of one "
    "task; or each rollout is a task of its own (id).",
)
shuffle_option = option(
    "--shuffle-rewards",
    type=SEED,
    metavar="SEED",
    help="Negative control: permute the rewards among rollouts with this seed, so that there is "
    "nothing to learn. By default rewards stay where they are.",
)


class MissingFile(click.ClickException):
    """There is no file at a path that the user named."""

    exit_code = click.UsageError.exit_code


@contextmanager
def expected_errors() -> Iterator[None]:
    """Print errors that the user can fix as one sentence; others keep their traceback."""
    from otel_lightning.learner.errors import DataError, MissingFileError

    try:
        with command_line.expected_errors(DataError):
            yield
    except click.ClickException as error:
        if isinstance(error.__cause__, MissingFileError):
            raise MissingFile(error.message) from error.__cause__
        raise


def refuse_given(names: Iterable[str], when: str) -> None:
    """Refuse options on the command line that would be ignored.

    Args:
        names: Names of the parameters.
        when: Why they are ignored, such as "with --model".
    """
    context = click.get_current_context()
    on_command_line = {
        name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    for option in context.command.params:
        if option.name in on_command_line:
            name_shown = (
                option.opts[0] if isinstance(option, click.Option) else option.human_readable_name
            )
            raise click.UsageError(f"{name_shown} has no effect {when}. Leave it out.")


def report_verdict(verdict: "Verdict", command: str, passed: str, refused: str) -> None:
    """Print the gate's measurements and its verdict; if it refused, exit with code `REFUSED`.

    Args:
        verdict: The verdict.
        command: The command that learned the candidate: `policy` or `weights`.
        passed: A sentence about the candidate, if it passed.
        refused: A sentence about the candidate, if it was refused.
    """
    if verdict.tasks:
        _report_numbers(verdict)
    else:
        click.echo("Held out: no rollout, so nothing was judged.")
    if verdict.passed:
        click.echo(f"The gate passed. {passed}")
        return
    click.echo(f"The gate refused: {'; '.join(verdict.refusals)}. {refused}", err=True)
    from otel_lightning.learner.evaluate.to_pass import what_would_pass

    click.echo(f"To pass: {what_would_pass(verdict, command)}", err=True)
    raise click.exceptions.Exit(REFUSED)


def _report_numbers(verdict: "Verdict") -> None:
    """Print the value of both policies, the gain with its bounds, and the weights."""
    from otel_lightning.learner.evaluate.estimates import outside_range
    from otel_lightning.learner.evaluate.refusals import Cause

    bounds = (
        f"with 95 % confidence each (one-sided) at least {decimal(verdict.lower, '+')}, at most "
        f"{decimal(verdict.upper, '+')}."
    )
    if verdict.lower > verdict.upper:
        bounds = "its bounds contradict each other, so the propensities must be wrong."
    compared = "live" if verdict.is_weighted else "by chance"
    click.echo(
        f"Held out: {number_of(verdict.rollouts, 'rollout')} of "
        f"{number_of(verdict.tasks, 'task')}. Value "
        f"{decimal(verdict.behavior_value)} {compared}, {decimal(verdict.value)} learned "
        f"({verdict.estimator}): gain {decimal(verdict.gain, '+')}; {bounds}"
    )
    if not verdict.is_weighted:
        return
    unknown = any(reason.cause is Cause.REWARD_RANGE for reason in verdict.reasons)
    if not unknown and outside_range({"": verdict.value}, verdict.reward_range):
        click.echo(
            "The value learned is outside of the rewards' range "
            f"[{verdict.reward_range[0]:g}, {verdict.reward_range[1]:g}], so it is an error of the "
            "estimate: use the bounds of the gain."
        )
    click.echo(
        "These rollouts tell as much about the new policy as "
        f"{verdict.effective_sample_size:.1f} of its own would (effective sample size); its mean "
        f"importance weight is {verdict.mean_weight:.2f}."
    )
