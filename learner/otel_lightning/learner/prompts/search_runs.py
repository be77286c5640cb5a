"""Evaluate prompts of a search by running the agent: each rollout is traced, stored and graded."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from otel_lightning.collector.store import open_store
from otel_lightning.instrumentation.attributes import POLICY_VERSION, PROPENSITY
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy import flag_file
from otel_lightning.learner.prompts.records import Record, make_records
from otel_lightning.learner.prompts.rollouts import Rollouts
from otel_lightning.learner.prompts.search import Evaluated
from otel_lightning.learner.rollout_runner import Grading, Job, Report, Task, run_agent
from otel_lightning.learner.rollout_runner.arms import reading


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs the agent with one variant of a flag; calling it evaluates a prompt on tasks."""

    store: Path
    flags: Path
    key: str
    job: Job
    """The agent; its tasks and its name are replaced for each evaluation."""
    grading: Grading
    folder: Path
    """Folder for the flag files, each of which serves one prompt."""

    def __call__(self, tasks: Sequence[Task], value: Any, number: int) -> Evaluated:
        """Run a prompt on tasks.

        Raises:
            DataError: If the run does not end.
        """
        name = f"{self.job.name}.{number}"
        flags = self._served(value, name)
        job = replace(self.job, tasks=tasks, name=name, seed=number, environment=reading(flags))
        report = run_agent(self.store, job, self.grading)
        if report.stopped or report.interrupted:
            raise DataError(f"Run '{name}' did not end ({report.stopped or 'interrupted'}).")
        rewards = {report.tasks[rollout]: value for rollout, value in report.rewards.items()}
        return Evaluated(rewards, self._records(report) if report.rewards else {})

    def _served(self, value: Any, name: str) -> Path:
        document = copy.deepcopy(flag_file.read_flag_file(self.flags, self.key))
        flag = document["flags"][self.key]
        arm = f"search-{sha256(json.dumps(value).encode()).hexdigest()[:8]}"
        # Without targeting, the default variant serves every request.
        flag.pop("targeting", None)
        flag["variants"] = {arm: value}
        flag |= {"state": "ENABLED", "defaultVariant": arm}
        flag["metadata"] = {f"{PROPENSITY}.{arm}": 1.0, POLICY_VERSION: f"run-{name}"}
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder.resolve() / f"{name}.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        return file

    def _records(self, report: Report) -> Mapping[str, Record]:
        low, high = min(report.rewards.values()), max(report.rewards.values())
        # Below the middle is a failure. If all are equal, they are failures unless they reach 0.5.
        middle = (low + high) / 2 if low < high else max(low, 0.5)
        rows = pl.DataFrame(
            [
                {"rollout_id": one, "judged_as": one, "arm": "this", "outcome": value}
                for one, value in report.rewards.items()
            ]
        ).with_columns(failed=pl.col("outcome") < middle)
        with open_store(self.store) as found:
            records = make_records(found, Rollouts(rows, 1, 0), list(report.rewards))
        return {report.tasks[rollout]: record for rollout, record in records.items()}
