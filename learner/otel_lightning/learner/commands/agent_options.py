"""Options of the commands that run an agent on tasks: `run`, `evaluate`, `gate`, `prompts`."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.learner.commands.common import GIVEN_FILE, Command, option
from otel_lightning.learner.commands.values import CommandLine, Finite, FiniteNumber

if TYPE_CHECKING:
    from otel_lightning.learner.rollout_runner import Grading

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "--tasks": {"type": GIVEN_FILE, "help": "Tasks: .jsonl, .json, .csv or .parquet."},
    "--samples": {
        "type": click.IntRange(1),
        "default": 1,
        "help": "Number of rollouts per task.",
    },
    "--jobs": {
        "type": click.IntRange(1),
        "default": 2,
        "help": "Number of rollouts that run at once.",
    },
    "--timeout": {
        "type": Finite(0.1),
        "default": 300.0,
        "help": "Seconds for one rollout; then it is ended, and its status is timeout.",
    },
    "--retries": {
        "type": click.IntRange(0),
        "default": 2,
        "help": "Number of further attempts at a rollout that was lost. An agent that failed is "
        "not run again.",
    },
    "--rerun": {
        "type": click.Choice(["failed", "timeout", "lost"]),
        "multiple": True,
        "help": "Run rollouts with this status once more; may be repeated.",
    },
    "--grade": {
        "metavar": "RULE",
        "help": "Reward by a rule: FILE.py:FUNCTION, FILE.sql or FILE.toml. By default the "
        "rewards are those that the agent sends.",
    },
    "--grade-command": {
        "type": CommandLine(),
        "help": "Reward by a program: it reads JSON and prints a number, or an object with score "
        "and explanation.",
    },
    "--exit-code-is-reward": {
        "is_flag": True,
        "help": "Reward 1 for exit code 0, and 0 for any other.",
    },
    "--failed-reward": {
        "type": FiniteNumber(),
        "help": "Reward of rollouts that failed or timed out. By default the grader judges them, "
        "too.",
    },
    "--split": {
        "type": click.Choice(["train", "heldout", "all"]),
        "default": "all",
        "help": "Run the tasks of this split only; the split is that of lightning-learn "
        "transitions.",
    },
    "--limit": {
        "type": click.IntRange(1),
        "help": "Run only this many tasks, the first ones. By default all run.",
    },
    "--stdin": {
        "type": click.Choice(["json", "input", "none"]),
        "default": "json",
        "help": "What the agent reads from standard input: the task as JSON (json), the task's "
        "input as text (input), or nothing.",
    },
    "--store-timeout": {
        "type": Finite(1.0),
        "default": 300.0,
        "help": "Longest wait, in seconds, for a lightning-ingest that makes no progress in "
        "storing and deriving; then the command fails.",
    },
    "--name": {
        "metavar": "NAME",
        "help": "Name of the run. With another name, all rollouts are run again.  [default: a hash "
        "of the command, the file of tasks and the seed]",
    },
}


def agent_options(
    command: str, *names: str, condition: str = "", **changes: dict[str, Any]
) -> Callable[[Command], Command]:
    """Declare the options of a command that runs an agent, and the argument AGENT.

    Args:
        command: Name of the command, which their variables have.
        names: The options to declare, such as `--tasks`; all if none is named.
        condition: Start of each help text, if the command runs an agent under a condition only.
        changes: Attributes that differ in this command, by the option's name with `_`.
    """

    def declare(function: Command) -> Command:
        for name in reversed(names or tuple(ATTRIBUTES)):
            differing = changes.get(name.removeprefix("--").replace("-", "_"), {})
            attributes = {**ATTRIBUTES[name], **differing}
            attributes["help"] = condition + attributes["help"]
            function = option(name, command=command, **attributes)(function)
        return click.argument("agent", nargs=-1, type=click.UNPROCESSED)(function)

    return declare


def warn_of_copies(tasks: Path, held_out: float) -> None:
    """Warn of held-out tasks that are tasks to learn from under another id."""
    from otel_lightning.learner.rollout_runner.tasks import (
        copies_warning,
        read_tasks,
        tasks_in_split,
    )
    from otel_lightning.learner.task_splits import HELD_OUT, TRAIN

    all_tasks = read_tasks(tasks).tasks
    judging, learning = (tasks_in_split(all_tasks, split, held_out) for split in (HELD_OUT, TRAIN))
    if warning := copies_warning(judging, learning):
        click.echo(warning, err=True)


def grading_of(settings: dict[str, Any]) -> "Grading":
    """Take the options of grading out of the options of a command."""
    from otel_lightning.learner.rollout_runner import Grading

    words = settings.pop("grade_command")
    return Grading(
        rule=settings.pop("grade"),
        command=shlex.split(words) if words else [],
        by_exit_code=settings.pop("exit_code_is_reward"),
        failed_reward=settings.pop("failed_reward", None),
        reward=settings.pop("reward"),
        jobs=settings["jobs"],
    )
