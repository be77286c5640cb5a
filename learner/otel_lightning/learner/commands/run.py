"""`lightning-learn run`."""

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from otel_lightning.collector.terminal.command_line import example, uncollected
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.commands.agent_options import agent_options, grading_of
from otel_lightning.learner.commands.common import (
    FILE,
    expected_errors,
    held_out_option,
    refuse_given,
    store_option,
)
from otel_lightning.learner.commands.common import option as shared_option
from otel_lightning.learner.commands.values import CommandLine, Shard

if TYPE_CHECKING:
    from otel_lightning.learner.rollout_runner import Grading, Job, Report

option = partial(shared_option, command="run")
SHOWN_REASONS = 3
"""Number of reasons of lost and failed attempts that are printed, the most frequent ones."""


@click.command(
    epilog=example(
        "lightning-learn run --tasks tasks.jsonl --grade grade.py:right -- python agent.py"
    )
)
@store_option
@agent_options("run", tasks={"required": True})
@option("--reward", metavar="NAME", help="Report the received rewards of this name only.")
@option(
    "--seed",
    type=int,
    default=0,
    help="Seed of the run; the seed of each rollout is computed from it.",
)
@held_out_option
@option(
    "--shard",
    type=Shard(),
    default="1/1",
    help="Run this part of the rollouts, such as 3/8: one part for each machine.",
)
@option("--key", metavar="KEY", help="With --arm: key of the flag whose variants are the arms.")
@option("--flags", type=FILE, help="With --arm: the flagd flag file that has the arms.")
@option(
    "--arm",
    metavar="VARIANT",
    multiple=True,
    help="Run every task with this arm; may be repeated. Each is compared with the first.",
)
@option(
    "--url",
    metavar="URL",
    help="Instead of AGENT: POST each task as JSON to this agent server. The headers traceparent "
    "and baggage name the rollout.",
)
@option(
    "--serve",
    type=CommandLine(),
    help="Instead of AGENT: start workers that run many tasks; each reads a task as a JSON line "
    "and writes a JSON line. For agents that take long to start.",
)
@option("--ray", is_flag=True, help="Run AGENT on the machines of a Ray cluster.")
@option(
    "--dev",
    is_flag=True,
    help="Run two tasks in a store of their own, check each link from the agent to learning, and "
    "name the first broken one with its remedy.",
)
@option(
    "--max-output",
    type=click.IntRange(1),
    default=64 * 2**20,
    help="Bytes that an agent may write to standard output or error; above it, the agent is "
    "ended, and its status is failed.",
)
@option(
    "--endpoint",
    metavar="URL",
    help="OTLP receiver that agents send to, such as a Collector. By default the lightning-ingest "
    "that serves the store, which is started if none does.",
)
def run(  # noqa: PLR0913 - one parameter an option
    agent: tuple[str, ...],
    store: str,
    *,
    key: str | None,
    flags: Path | None,
    arm: tuple[str, ...],
    serve: str | None,
    dev: bool,
    **settings: Any,
) -> None:
    """Run an unchanged AGENT on tasks: a command and its arguments, after --.

    The agent gets its task as JSON on standard input, and in LIGHTNING_TASK_ID, LIGHTNING_SEED and
    LIGHTNING_TASK_FILE. In its arguments {id}, {input}, {file} and the names of fields are
    replaced. The same command again runs only what is missing.
    """
    with expected_errors():
        with uncollected():
            from otel_lightning.learner.rollout_runner import Arms, Job, run_agent

        if not (agent or serve or settings["url"]):
            raise click.UsageError("Say how to run the agent: -- COMMAND, --url or --serve.")
        if arm and not (key and flags):
            raise click.UsageError("--arm needs --key and --flags, which say where the arms are.")
        if not arm:
            refuse_given(("key", "flags"), "without --arm")
        if len(arm) == 1:
            raise click.UsageError("Comparing needs two arms or more: --arm A --arm B.")
        arms = Arms(key, flags, arm) if arm and key and flags else None
        grading = grading_of(settings)
        worker = shlex.split(serve) if serve else []
        job = Job(command=agent, serve=worker, arms=arms, **settings)
        if dev:
            _check(job, grading, Path(store))
            return
        report = run_agent(store, job, grading, owns_process=not arms)
    print_report(report, store)


def _check(job: "Job", grading: "Grading", store: Path) -> None:
    from otel_lightning.learner.rollout_runner.dev import check_chain

    for link in check_chain(job, grading, store):
        click.echo(str(link))
        if link.holds is False:
            raise click.ClickException(f"The chain is broken at: {link.name}.")
    click.echo("No link is broken. Run it without --dev.")


def print_report(report: "Report", store: str) -> None:
    """Print how the rollouts of a run ended, and their rewards.

    Raises:
        ClickException: If rollouts are missing, or none could be graded.
    """
    from otel_lightning.learner.rollout_runner.report import in_words

    if not report.planned:
        click.echo(f"Run {report.run_id}: this shard has no rollout, so nothing was run.")
        return
    before = f", {report.done_before:,} of them before this start" if report.done_before else ""
    click.echo(f"Run {report.run_id}: {number_of(report.planned, 'rollout')}{before}.")
    click.echo(f"By the status of the last attempt: {in_words(report.statuses)}.")
    for note in _notes(report):
        if note.number:
            click.echo(str(note), err=True)
    for reason, count in list(report.reasons.items())[:SHOWN_REASONS]:
        click.echo(f"{number_of(count, 'attempt')} {reason}.", err=True)
    for problem in report.problems:
        click.echo(problem, err=True)
    _print_rewards(report, store)
    _print_comparisons(report)
    if report.missing:
        reason = f" ({report.stopped})" if report.stopped else ""
        advice = "To go on, give the same command again."
        if report.given_up:
            advice = (
                f"{number_of(report.given_up, 'of them was', 'of them were')} lost in each "
                "attempt: correct the cause, and give the same command with --rerun lost."
            )
        raise click.ClickException(
            f"{number_of(report.missing, 'rollout is', 'rollouts are')} missing{reason}. {advice}"
        )
    # A store on another machine is no problem of the grader: it grades there.
    if report.problems and not report.rewards and Path(store).exists():
        raise click.ClickException(
            "No rollout was graded. Correct the grader, and give the same command again: it runs "
            "no rollout twice."
        )


class _Note(NamedTuple):
    """A number about a run, which is printed as a sentence unless it is 0."""

    number: int
    singular: str
    """The noun and the verb after the number 1, such as "attempt was"."""
    plural: str
    rest: str

    def __str__(self) -> str:
        return f"{number_of(self.number, self.singular, self.plural)} {self.rest}."


def _notes(report: "Report") -> list[_Note]:
    from otel_lightning.learner.rollout_runner.attempts import MOST_OUTPUT

    return [
        _Note(
            report.retried,
            "attempt was",
            "attempts were",
            "repeated, because the one before was cut off or lost, or --rerun asks for it",
        ),
        _Note(
            report.worked_on_twice,
            "attempt of these was",
            "attempts of these were",
            "with the server of --url when the runner ended: it may have done the work twice",
        ),
        _Note(
            report.interrupted,
            "attempt was",
            "attempts were",
            "cut off; the same command runs what is missing",
        ),
        _Note(
            report.without_id,
            "task has",
            "tasks have",
            "no id in the file, so a hash of the fields is the id",
        ),
        _Note(
            report.left_processes,
            "process that an agent had left behind was",
            "processes that agents had left behind were",
            "ended",
        ),
        _Note(
            report.shortened,
            "attempt printed",
            "attempts printed",
            f"more than {MOST_OUTPUT:,} characters; the store and graders get the last ones",
        ),
        _Note(
            report.silent,
            "rollout has",
            "rollouts have",
            "no recorded model call, so there is nothing to learn from",
        ),
    ]


def _print_comparisons(report: "Report") -> None:
    comparisons = report.compare()
    for compared in comparisons:
        click.echo(str(compared))
    if any(compared.reward_range is None for compared in comparisons):
        click.echo(
            "A gate would ask for --reward-range: the rewards are not all 0 or 1, so a rare loss "
            "that is in none of these rollouts could be of any size."
        )


def _print_rewards(report: "Report", store: str) -> None:
    from otel_lightning.learner.rollout_runner.report import interval

    if report.mean is None:
        # A grader that was given has named its problems above.
        ways = (
            " Grade them: give the same command with --grade FILE.py:FUNCTION, which runs no "
            "rollout twice; or send feedback."
        )
        click.echo(f"No rollout has a reward.{'' if report.problems else ways}")
        return
    bounds = interval(report)
    within = "all rewards are equal"
    if bounds is not None:
        within = f"95 % interval {decimal(bounds[0])} to {decimal(bounds[1])} over tasks"
    graded = number_of(len(report.rewards), "graded rollout")
    click.echo(f"Mean reward {decimal(report.mean)}, {within}, of {graded}.")
    if report.silent == report.planned:
        click.echo("To find out why no model call was recorded, give the same command with --dev.")
        return
    command = next_command("lightning-learn transitions", store, reward=report.reward_name or None)
    click.echo(f"Learn from it with: {command}")
