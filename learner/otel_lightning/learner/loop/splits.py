"""Divide the tasks of a loop: to learn from, to judge by, and for the last report only."""

from collections.abc import Sequence
from dataclasses import dataclass

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.loop.config import SplitPart
from otel_lightning.learner.rollout_runner.tasks import Task, tasks_in_split
from otel_lightning.learner.task_splits import HELD_OUT, TRAIN, position

Tasks = Sequence[Task]


@dataclass(frozen=True, slots=True)
class Split:
    """The tasks by their use."""

    train: Tasks
    held_out: Tasks
    final: Tasks


def divide(tasks: Tasks, part: SplitPart) -> Split:
    """Divide tasks by hashes of their ids, the same on every day and machine.

    The final tasks are taken first, by a hash of their own. The others are divided as
    `lightning-learn transitions` divides rollouts.

    Raises:
        DataError: If a part would be empty.
    """
    # The prefix makes this division independent of the one of the other tasks.
    positions = {task.task_id: position(f"final/{task.task_id}") for task in tasks}
    final = [task for task in tasks if positions[task.task_id] < part.final]
    other_tasks = [task for task in tasks if positions[task.task_id] >= part.final]
    split = Split(
        tasks_in_split(other_tasks, TRAIN, part.held_out),
        tasks_in_split(other_tasks, HELD_OUT, part.held_out),
        final,
    )
    if not split.train or not split.held_out or (part.final > 0 and not final):
        raise DataError(
            f"{number_of(len(tasks), 'task is', 'tasks are')} too few to divide: "
            f"{len(split.train)} to learn from, "
            f"{len(split.held_out)} held out, {len(final)} for the last report. Give more tasks, "
            "or change [split]."
        )
    return split
