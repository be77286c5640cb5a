"""Workers that stay: a JSON line in, a JSON line out, one rollout at a time.

The launcher starts them, gives them their tasks and reads their answers. It outlives this process,
so an answer that comes when this process is killed is in the journal too, and its rollout is not
run again.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from otel_lightning.learner.rollout_runner.arms import flag_variables
from otel_lightning.learner.rollout_runner.attempts import Attempt, about, agent_fields
from otel_lightning.learner.rollout_runner.engine.executors import ExecutorSettings
from otel_lightning.learner.rollout_runner.launcher.journal import FOLDER_VARIABLE
from otel_lightning.learner.rollout_runner.launcher.processes import Ended, Processes, Spec

SPARE_SECONDS = 5.0
"""Time beside two graces for the launcher to end all workers."""


class WorkerExecutor:
    """Gives tasks to workers.

    A worker reads its flag file when it starts, so each arm has workers of its own.
    """

    def __init__(self, settings: ExecutorSettings, processes: Processes) -> None:
        """Take the settings, and the launcher; the job's `serve` is the worker's command."""
        self._settings, self._processes = settings, processes
        self._names: list[str] = []
        self._idle: dict[str | None, list[str]] = defaultdict(list)
        """Names of idle workers of each arm. The one that was used last is used next: it is warm,
        and another one is started only if all are busy."""
        self._busy: dict[str, tuple[str | None, str]] = {}
        self._specs: dict[str, Spec] = {}
        """The process of each worker, by its name."""

    def check(self, attempt: Attempt) -> None:
        """Do nothing: every task fits into a line."""

    def start(self, attempt: Attempt) -> None:
        """Give a task to an idle worker, or start one."""
        arm, arms = attempt.planned.arm, self._settings.job.arms
        # All arms are needed: their workers start at the same time, and not one after the other.
        all_arms = arms.names if arms and not self._names else ()
        if not self._idle[arm]:
            self._name_worker(arm)
        name = self._idle[arm].pop()
        self._busy[attempt.rollout_id] = (arm, name)
        beside = [
            self._worker(other, self._name_worker(other)).message()
            for other in all_arms
            if other != arm
        ]
        self._processes.ask(self._worker(arm, name), self._task(attempt) | {"beside": beside})

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield how attempts ended."""
        for ended in self._processes.ended(seconds):
            arm, name = self._busy.pop(ended.rollout_id)
            # If the worker has ended, too, the launcher starts it again with the next task.
            self._idle[arm].append(name)
            yield ended

    def stop(self) -> None:
        """End all workers, and what they work on."""
        self._processes.stop()

    def close(self) -> None:
        """End the workers: close their input, and kill those that do not end."""
        if self._names:
            self._processes.dismiss_workers(2 * self._settings.job.grace + SPARE_SECONDS)

    def _name_worker(self, arm: str | None) -> str:
        self._names.append(f"worker-{len(self._names) + 1}")
        self._idle[arm].append(self._names[-1])
        return self._names[-1]

    def _worker(self, arm: str | None, name: str) -> Spec:
        if name not in self._specs:
            self._specs[name] = self._spec(arm, name)
        return self._specs[name]

    def _spec(self, arm: str | None, name: str) -> Spec:
        job, folder = self._settings.job, self._settings.journal.folder.resolve()
        served = flag_variables(self._settings.flags[arm]) if arm else {}
        variables = {
            **self._settings.telemetry,
            **(job.environment or {}),
            FOLDER_VARIABLE: str(folder),
            "LIGHTNING_RUN_WORKER": name,
            **served,
        }
        return Spec(name, job.serve, folder, environment=variables, grace=job.grace)

    def _task(self, attempt: Attempt) -> dict[str, Any]:
        job, journal = self._settings.job, self._settings.journal
        line = {
            **agent_fields(attempt.planned.task),
            "rollout_id": attempt.rollout_id,
            "sample": attempt.planned.sample,
            "attempt": attempt.number,
            "seed": attempt.planned.seed,
            "arm": attempt.planned.arm,
        }
        return {
            "id": attempt.rollout_id,
            "line": json.dumps(line) + "\n",
            "timeout": job.timeout,
            "stdout": str(journal.outputs / f"{attempt.rollout_id}.out"),
            "max_output": job.max_output,
            "about": about(journal.folder.name, job, attempt),
        }
