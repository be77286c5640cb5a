"""Divide the tasks of a loop: to learn from, to judge by, and for the last report only."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.loop.config import SplitPart
from otel_lightning.learner.rollout_runner.tasks import HELD_OUT, TRAIN, Task, tasks_in_split

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
    final = [task for task in tasks if _position(task.task_id) < part.final]
    others = [task for task in tasks if _position(task.task_id) >= part.final]
    split = Split(
        tasks_in_split(others, TRAIN, part.held_out),
        tasks_in_split(others, HELD_OUT, part.held_out),
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


def _position(task_id: str) -> float:
    """Return where a task lies in [0, 1) for the final split."""
    # 13 hexadecimal digits are 52 bits, which a float holds exactly. The prefix makes this hash
    # independent of the one that divides the other tasks.
    return int(sha256(f"final/{task_id}".encode()).hexdigest()[:13], 16) / 2**52
