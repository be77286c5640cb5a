"""One attempt at a rollout: the agent's input, and the record of its end for the store."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from otel_lightning.collector.show.conversation import text_or_json
from otel_lightning.instrumentation import attributes
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.ingester.receiver import Event
from otel_lightning.learner.rollout_runner.launcher.output_files import tail
from otel_lightning.learner.rollout_runner.launcher.processes import Ended
from otel_lightning.learner.rollout_runner.plan import Job, Planned
from otel_lightning.learner.rollout_runner.tasks import Task

OK, FAILED, TIMEOUT, LOST = "ok", "failed", "timeout", "lost"
MOST_OUTPUT, MOST_ERRORS = 20_000, 4_000
"""Characters of the end of standard output and of standard error that the store keeps."""
MAX_ARGUMENT_BYTES = 131_071
"""Bytes of one argument that Linux accepts."""
# Matches `{{` and `}}` (braces that stay) or `{name}`; other braces, as of JSON, are left alone.
FIELD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a planned rollout."""

    planned: Planned
    number: int = 0

    @property
    def rollout_id(self) -> str:
        """Id of the attempt, which is the rollout's id in the store."""
        return self.planned.rollout_id(self.number)

    def next(self) -> "Attempt":
        """Return the attempt after this one."""
        return replace(self, number=self.number + 1)


def agent_fields(task: Task) -> dict[str, Any]:
    """Return the fields of a task that the agent sees, without the expected result."""
    return {"id": task.task_id, **task.fields}


def as_line(task: Task) -> str:
    """Return a task as an agent reads it: one JSON object and a line end."""
    return json.dumps(agent_fields(task), ensure_ascii=False) + "\n"


def environment(job: Job, attempt: Attempt) -> dict[str, str]:
    """Return the variables that tell an agent which rollout it runs."""
    planned = attempt.planned
    return {
        **(job.environment or {}),
        "LIGHTNING_TASK_ID": planned.task.task_id,
        "LIGHTNING_ROLLOUT_ID": attempt.rollout_id,
        "LIGHTNING_ATTEMPT": str(attempt.number),
        "LIGHTNING_SAMPLE": str(planned.sample),
        "LIGHTNING_SEED": str(planned.seed),
        # A killed agent loses the spans that were not sent yet.
        "OTEL_BSP_SCHEDULE_DELAY": "500",
        "OTEL_BLRP_SCHEDULE_DELAY": "500",
    }


def command(words: Sequence[str], attempt: Attempt, files: Mapping[str, Path | None]) -> list[str]:
    """Fill a task into the words of a command; no shell sees them.

    Args:
        words: The command; `{name}` is replaced, `{{` and `}}` are braces.
        attempt: The attempt.
        files: Paths by name: `file` (the task as JSON) and `flags` (the arm's flag file).

    Raises:
        DataError: If a name is unknown, or an argument is longer than the system accepts.
    """
    values = _values(attempt, files)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        if name not in values:
            names = ", ".join(sorted(values))
            raise DataError(
                f"The command has '{{{name}}}', but task '{attempt.planned.task.task_id}' has no "
                f"such field. Known: {names}. For a brace itself write '{{{{'."
            )
        return text_or_json(values[name])

    filled = [FIELD.sub(value, word) for word in words]
    for word in filled:
        # Linux would refuse it with "Argument list too long" only when the agent is started.
        if len(word.encode("utf-8", "replace")) > MAX_ARGUMENT_BYTES:
            raise DataError(
                f"Task '{attempt.planned.task.task_id}' makes an argument of {len(word)} "
                "characters, and the system accepts 128 KiB. Give the agent {file} instead."
            )
    return filled


def _values(attempt: Attempt, files: Mapping[str, Path | None]) -> dict[str, Any]:
    planned = attempt.planned
    of_the_run = {
        "id": planned.task.task_id,
        "input": planned.task.input,
        "sample": planned.sample,
        "seed": planned.seed,
        "rollout_id": attempt.rollout_id,
        "attempt": attempt.number,
    }
    if planned.arm is not None:
        of_the_run["arm"] = planned.arm
    paths = {name: str(path) for name, path in files.items() if path is not None}
    # The later ones win, so a field of a task cannot hide the file or the seed.
    return {**planned.task.fields, **of_the_run, **paths}


def status_of(ended: Ended) -> tuple[str, str | None]:
    """Classify the end of an attempt, with the reason.

    Only the agent's own exit is `ok` or `failed`. An end that the agent did not decide is `lost`.
    """
    if ended.status == "timeout":
        return TIMEOUT, ended.reason
    if ended.status == "output":
        return FAILED, "it wrote more than the limit of --max-output"
    if ended.status == "exited" and ended.exit_code is not None:
        return (OK if ended.exit_code == 0 else FAILED), ended.reason
    # Killed from outside, as by the kernel when memory runs out: not the agent's decision.
    if ended.signal is not None and ended.status == "exited":
        return LOST, f"it was ended by signal {ended.signal}"
    return LOST, ended.reason or ended.status.replace("_", " ")


def about(run_id: str, job: Job, attempt: Attempt) -> dict[str, Any]:
    """Return the run, task, sample and arm of an attempt, for the journal."""
    planned = attempt.planned
    return {
        "run_id": run_id,
        "task_id": planned.task.task_id,
        "sample": planned.sample,
        "attempt": attempt.number,
        "arm": planned.arm,
        "model": job.model,
        "seed": planned.seed,
    }


def attempt_event(about: Mapping[str, Any], ended: Ended, outputs: Path) -> Event:
    """Return the log record of an attempt, which is always the same for the same end."""
    status, reason = status_of(ended)
    body = {
        **about,
        "rollout_id": ended.rollout_id,
        "status": status,
        "exit_code": ended.exit_code,
        "reason": reason,
        "started": ended.started,
        "ended": ended.ended,
        "cpu_seconds": ended.cpu_seconds,
        "left_processes": ended.left,
    }
    fields = {
        attributes.ROLLOUT_ID: ended.rollout_id,
        attributes.TASK_ID: str(about.get("task_id", "")),
        "output": tail(outputs / f"{ended.rollout_id}.out", MOST_OUTPUT),
        "errors": tail(outputs / f"{ended.rollout_id}.err", MOST_ERRORS),
    }
    return Event(attributes.ATTEMPT, ended.ended, body, fields)


def task_event(task: Task, now_ns: int) -> Event:
    """Return the log record of a task, which graders read."""
    body = {
        "task_id": task.task_id,
        "input": task.input,
        "expected": task.expected,
        "metadata": task.metadata,
        "fingerprint": task.whole_fingerprint,
    }
    return Event(attributes.TASK, now_ns, body, {attributes.TASK_ID: task.task_id})
