"""Run an unchanged agent on tasks: `lightning-learn run`, and `run_agent` for Python.

Begin in `run.py`: `engine/` runs the attempts that `plan.py` lists, in processes that `launcher/`
starts, and their telemetry goes to the `lightning-ingest` of `ingester/`. `grading.py` gives the
rewards. `dev.py` is `run --dev`, and `evaluate.py` compares models.

The comparison of arms needs numpy and is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from otel_lightning.learner.rollout_runner.attempts import FAILED, LOST, OK, TIMEOUT
from otel_lightning.learner.rollout_runner.grading import Grading
from otel_lightning.learner.rollout_runner.plan import Arms, Job
from otel_lightning.learner.rollout_runner.report import Report
from otel_lightning.learner.rollout_runner.run import run_agent
from otel_lightning.learner.rollout_runner.tasks import Task, Tasks, read_tasks

if TYPE_CHECKING:
    from otel_lightning.learner.evaluate.paired import Compared, compare

__all__ = [
    "FAILED",
    "LOST",
    "OK",
    "TIMEOUT",
    "Arms",
    "Compared",
    "Grading",
    "Job",
    "Report",
    "Task",
    "Tasks",
    "compare",
    "read_tasks",
    "run_agent",
]


def __getattr__(name: str) -> Any:
    """Import a public name of the comparison when it is first used."""
    if name not in ("Compared", "compare"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module("otel_lightning.learner.evaluate.paired"), name)
