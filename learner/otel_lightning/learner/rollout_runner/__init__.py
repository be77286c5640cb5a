"""Run an unchanged agent on tasks: `lightning-learn run`, and `run_agent` for Python."""

from otel_lightning.learner.rollout_runner.attempts import FAILED, LOST, OK, TIMEOUT
from otel_lightning.learner.rollout_runner.grading import Grading
from otel_lightning.learner.rollout_runner.paired import Compared, compare
from otel_lightning.learner.rollout_runner.plan import Arms, Job
from otel_lightning.learner.rollout_runner.report import Report
from otel_lightning.learner.rollout_runner.run import run_agent
from otel_lightning.learner.rollout_runner.tasks import Task, Tasks, read_tasks

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
