"""Ways to run one attempt of an agent: a process for each, a worker that stays, or a server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from otel_lightning.learner.rollout_runner.arms import reading
from otel_lightning.learner.rollout_runner.attempts import (
    Attempt,
    about,
    as_line,
    as_text,
    command,
    environment,
)
from otel_lightning.learner.rollout_runner.journal import FOLDER_VARIABLE, Journal
from otel_lightning.learner.rollout_runner.plan import Job
from otel_lightning.learner.rollout_runner.processes import Ended, Processes, Spec


class Executor(Protocol):
    """Runs attempts at the same time, and tells how each ended."""

    def check(self, attempt: Attempt) -> None:
        """Refuse a task that does not fit, before any agent runs."""

    def start(self, attempt: Attempt) -> None:
        """Start an attempt."""

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield how attempts ended, waiting at most this long for the first."""

    def stop(self) -> None:
        """End all attempts; `ended` yields each as interrupted."""

    def close(self) -> None:
        """Free its resources."""


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """What all attempts of a run share, whichever executor runs them."""

    job: Job
    """The command and its limits."""
    journal: Journal
    """Where starts, ends and outputs are kept."""
    telemetry: Mapping[str, str]
    """Variables that make an agent send its traces."""
    flags: Mapping[str, Path]
    """Flag file of each arm; empty for a run without arms."""


class ProcessExecutor:
    """Runs each attempt as a process of its own."""

    def __init__(self, settings: ExecutorSettings, processes: Processes) -> None:
        """Take the settings, and the launcher that starts the processes."""
        self._job, self._journal, self._processes = settings.job, settings.journal, processes
        self._telemetry, self._flags = settings.telemetry, settings.flags
        self._folder = settings.journal.folder.resolve()
        self._inputs = settings.journal.inputs.resolve()

    def check(self, attempt: Attempt) -> None:
        """Refuse a task that does not fit into the command.

        Raises:
            DataError: If it does not.
        """
        self.spec(attempt)

    def start(self, attempt: Attempt) -> None:
        """Start the agent with its task on standard input, in variables and in its arguments."""
        self._processes.start(self.spec(attempt))

    def spec(self, attempt: Attempt) -> Spec:
        """Return the process of an attempt, and write the files that it reads.

        Raises:
            DataError: If the task does not fit into the command.
        """
        job, task = self._job, attempt.planned.task
        as_json = self._written(f"{task.fingerprint[:20]}.json", as_line(task))
        # Each variant writes only the file that it needs.
        stdin = {"json": as_json, "none": None}.get(job.stdin, as_json)
        if job.stdin == "input":
            stdin = self._written(f"{task.fingerprint[:20]}.txt", as_text(task.input) + "\n")
        flags = self._flags.get(attempt.planned.arm or "")
        served = reading(flags) if flags else {}
        variables = {
            **self._telemetry,
            **environment(job, attempt),
            "LIGHTNING_TASK_FILE": str(as_json),
            FOLDER_VARIABLE: str(self._folder),
            **served,
        }
        return Spec(
            attempt.rollout_id,
            command(job.command, attempt, {"file": as_json, "flags": flags}),
            self._journal.outputs,
            environment=variables,
            stdin=stdin,
            timeout=job.timeout,
            grace=job.grace,
            max_output=job.max_output,
            about=about(self._journal.folder.name, job, attempt),
        )

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield how attempts ended."""
        return self._processes.ended(seconds)

    def stop(self) -> None:
        """End all attempts."""
        self._processes.stop()

    def close(self) -> None:
        """Do nothing: the launcher ends with the run."""

    def _written(self, name: str, text: str) -> Path:
        path = self._inputs / name
        # Named by the hash of the task, so all samples and arms of a task share one file.
        if not path.exists():
            path.write_text(text, encoding="utf-8", errors="replace")
        return path
