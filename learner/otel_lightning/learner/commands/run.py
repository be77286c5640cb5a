"""`lightning-learn run`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.learner.commands.common import (
    FILE,
    expected_errors,
    held_out_option,
    store_option,
)
from otel_lightning.learner.commands.common import option as shared_option
from otel_lightning.learner.commands.values import Shard

if TYPE_CHECKING:
    from otel_lightning.learner.rollout_runner import Report

INCOMPLETE = 1
"""Exit code when rollouts are missing at the end."""

option = partial(shared_option, command="run")


@click.command()
@click.argument("agent", nargs=-1, type=click.UNPROCESSED)
@store_option
@option("--tasks", type=FILE, required=True, help="Tasks: .jsonl, .json, .csv or .parquet.")
@option("--samples", type=click.IntRange(1), default=1, help="Number of rollouts per task.")
@option("--jobs", type=click.IntRange(1), default=2, help="Number of rollouts that run at once.")
@option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=300.0,
    help="Seconds for one rollout; then it is ended, and its status is timeout.",
)
@option(
    "--retries",
    type=click.IntRange(0),
    default=2,
    help="Further attempts at a rollout that was lost. An agent that failed is not run again.",
)
@option(
    "--rerun",
    type=click.Choice(["failed", "timeout", "lost"]),
    multiple=True,
    help="Attempt rollouts with this status once more; may be repeated.",
)
@option(
    "--grade",
    metavar="RULE",
    help="Reward by a rule: FILE.py:FUNCTION, FILE.sql or FILE.toml. By default the rewards are "
    "those that the agent sends.",
)
@option(
    "--grade-command",
    metavar="COMMAND",
    help="Reward by a program: it reads JSON and prints a number, or an object with score and "
    "explanation.",
)
@option(
    "--exit-code-is-reward",
    is_flag=True,
    help="Reward 1 for exit code 0, and 0 for any other.",
)
@option(
    "--failed-reward",
    type=float,
    help="Reward of rollouts that failed or timed out. By default the grader sees them too.",
)
@option("--reward", metavar="NAME", help="Report the received rewards of this name only.")
@option("--seed", type=int, default=0, help="Seed of the run; each rollout's own follows from it.")
@option(
    "--split",
    type=click.Choice(["train", "heldout", "all"]),
    default="all",
    help="Run the tasks of this split only; the split is that of lightning-learn transitions.",
)
@held_out_option
@option("--limit", type=click.IntRange(1), help="Run the first tasks only. By default all run.")
@option(
    "--shard",
    type=Shard(),
    default="1/1",
    help="Run this part of the rollouts, such as 3/8: one part for each machine.",
)
@option(
    "--stdin",
    type=click.Choice(["json", "input", "none"]),
    default="json",
    help="What the agent reads from standard input: the task as JSON, its input as text, nothing.",
)
@option("--key", metavar="KEY", help="With --arm: key of the flag whose variants are the arms.")
@option("--flags", type=FILE, help="With --arm: the flagd flag file that has the arms.")
@option(
    "--arm",
    metavar="VARIANT",
    multiple=True,
    help="Run every task with this arm; may be repeated. Each is compared with the first.",
)
@option("--name", metavar="NAME", help="Name of the run. Another name runs all again.")
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
    grade: str | None,
    grade_command: str | None,
    exit_code_is_reward: bool,
    failed_reward: float | None,
    reward: str | None,
    key: str | None,
    flags: Path | None,
    arm: tuple[str, ...],
    **settings: Any,
) -> None:
    """Run an unchanged AGENT on tasks: a command and its arguments, after --.

    The agent gets its task as JSON on standard input, and in LIGHTNING_TASK_ID, LIGHTNING_SEED and
    LIGHTNING_TASK_FILE. In its arguments {id}, {input}, {file} and the names of fields are
    replaced. The same command again runs only what is missing.
    """
    with expected_errors():
        from otel_lightning.learner.rollout_runner import Arms, Grading, Job, run_agent

        if arm and not (key and flags):
            raise click.UsageError("--arm needs --key and --flags, which say where the arms are.")
        settings["arms"] = Arms(key, flags, arm) if arm and key and flags else None

        grading = Grading(
            rule=grade,
            command=_words(grade_command),
            by_exit_code=exit_code_is_reward,
            failed_reward=failed_reward,
            reward=reward,
            jobs=settings["jobs"],
        )
        report = run_agent(store, Job(command=agent, **settings), grading)
    _tell(report, store)


def _words(command: str | None) -> list[str]:
    import shlex

    return shlex.split(command) if command else []


def _tell(report: "Report", store: str) -> None:
    from otel_lightning.learner.rollout_runner.report import told

    before = f", {report.done_before} of them before this start" if report.done_before else ""
    click.echo(f"Run {report.run_id}: {report.planned} rollouts{before}.")
    click.echo(f"By the status of the last attempt: {told(report.statuses)}.")
    for count, text in (
        (report.retried, "attempts were repeated, because a former one was lost or asked for"),
        (report.interrupted, "attempts were cut off; the same command runs them again"),
        (report.left_processes, "processes that agents had left behind were killed"),
        (
            report.silent,
            "rollouts made no model call that was recorded, so nothing is learned there",
        ),
    ):
        if count:
            click.echo(f"{count} {text}.", err=True)
    for problem in report.problems:
        click.echo(problem, err=True)
    _tell_rewards(report, store)
    for compared in report.compare() if report.arm_names else ():
        click.echo(str(compared))
    if report.missing:
        why = f" ({report.stopped})" if report.stopped else ""
        raise click.ClickException(
            f"{report.missing} rollouts are missing{why}. To go on, give the same command again."
        )


def _tell_rewards(report: "Report", store: str) -> None:
    from otel_lightning.learner.rollout_runner.report import interval

    if report.mean is None:
        click.echo("No rollout has a reward.")
        return
    low, high = interval(report)
    click.echo(
        f"Mean reward {report.mean:.4f}, 95 % interval {low:.4f} to {high:.4f} over tasks, of "
        f"{len(report.rewards)} graded rollouts."
    )
    named = f" --reward {report.reward_name}" if report.reward_name else ""
    click.echo(f"Learn from it with: lightning-learn transitions --store {store}{named}")
