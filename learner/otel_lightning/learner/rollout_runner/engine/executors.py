"""Ways to run one attempt of an agent: a process for each, a worker that stays, or a server."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from otel_lightning.collector.show.conversation import text_or_json
from otel_lightning.learner.rollout_runner.arms import flag_variables
from otel_lightning.learner.rollout_runner.attempts import (
    Attempt,
    about,
    as_line,
    command,
    environment,
)
from otel_lightning.learner.rollout_runner.launcher.journal import FOLDER_VARIABLE, Journal
from otel_lightning.learner.rollout_runner.launcher.processes import Ended, Processes, Spec
from otel_lightning.learner.rollout_runner.plan import Job


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
    """Settings that all attempts of a run share, whichever executor runs them."""

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
        self._command(attempt)

    def start(self, attempt: Attempt) -> None:
        """Start the agent with its task on standard input, in variables and in its arguments."""
        self._processes.start(self.spec(attempt))

    def spec(self, attempt: Attempt) -> Spec:
        """Return the process of an attempt, and write the files that it reads.

        Raises:
            DataError: If the task does not fit into the command.
        """
        job, task = self._job, attempt.planned.task
        as_json = self._task_file(attempt)
        _write_once(as_json, as_line(task))
        # Each variant writes only the file that it needs.
        stdin = {"json": as_json, "none": None}.get(job.stdin, as_json)
        if job.stdin == "input":
            stdin = as_json.with_suffix(".txt")
            _write_once(stdin, text_or_json(task.input) + "\n")
        flags = self._flags.get(attempt.planned.arm or "")
        served = flag_variables(flags) if flags else {}
        variables = {
            **self._telemetry,
            **environment(job, attempt),
            "LIGHTNING_TASK_FILE": str(as_json),
            FOLDER_VARIABLE: str(self._folder),
            **served,
        }
        return Spec(
            attempt.rollout_id,
            self._command(attempt),
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

    def _command(self, attempt: Attempt) -> list[str]:
        flags = self._flags.get(attempt.planned.arm or "")
        return command(
            self._job.command, attempt, {"file": self._task_file(attempt), "flags": flags}
        )

    def _task_file(self, attempt: Attempt) -> Path:
        # Named by the hash of the task, so all samples and arms of a task share one file.
        return self._inputs / f"{attempt.planned.task.fingerprint[:20]}.json"


def _write_once(path: Path, text: str) -> None:
    """Write a file, unless it is there with this size.

    It gets its name when it is whole, since later attempts read what a killed runner wrote.
    """
    content = text.encode(errors="replace")
    with suppress(FileNotFoundError):
        if path.stat().st_size == len(content):
            return
    unnamed = path.with_name(f"{path.name}.partial")
    unnamed.write_bytes(content)
    unnamed.replace(path)
