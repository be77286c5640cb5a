"""Run an unchanged agent on tasks: `lightning-learn run`, and `run_agent` for Python.

Begin in `run.py`: `engine/` runs the attempts that `plan.py` lists, in processes that `launcher/`
starts, and their telemetry goes to the `lightning-ingest` of `ingester/`. `grading.py` gives the
rewards. `dev.py` is `run --dev`, and `compare_models.py` compares models.
"""

from otel_lightning.learner.rollout_runner.attempts import FAILED, LOST, OK, TIMEOUT
from otel_lightning.learner.rollout_runner.grading import Grading
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
    "Grading",
    "Job",
    "Report",
    "Task",
    "Tasks",
    "read_tasks",
    "run_agent",
]
