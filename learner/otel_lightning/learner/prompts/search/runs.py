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
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.policy.serving import flag_file
from otel_lightning.learner.prompts.logged.records import Record, make_records
from otel_lightning.learner.prompts.logged.rollouts import Rollouts
from otel_lightning.learner.prompts.search.record import Graded, SearchRecord, evaluation_key
from otel_lightning.learner.prompts.search.search import Evaluated
from otel_lightning.learner.rollout_runner import OK, Grading, Job, Report, Task, run_agent
from otel_lightning.learner.rollout_runner.arms import flag_variables
from otel_lightning.learner.rollout_runner.engine.engine import HopelessError
from otel_lightning.learner.rollout_runner.report import in_words

QUOTED_CHARACTERS = 600
"""Characters of the end of standard error that an error quotes."""
ANEW = "Correct the agent, and run the same command again: it begins a new search."


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs the agent with one variant of a flag; calling it evaluates a prompt on tasks."""

    store: Path
    flags: Path
    key: str
    job: Job
    """The agent; its tasks and its name are replaced for each evaluation."""
    grading: Grading
    record: SearchRecord
    """The record of the search; flag files that each serve one prompt are put beside it."""

    def __call__(self, tasks: Sequence[Task], value: Any, number: int) -> Evaluated:
        """Run a prompt on tasks, as far as earlier starts of the search have not done it.

        Raises:
            DataError: If the run does not end, or no rollout has a reward.
        """
        graded = self.record.evaluations[number].graded
        if graded is None:
            graded = self._run(tasks, value, number)
            self.record.end(number, graded)
        return Evaluated(
            {rollout.task_id: rollout.reward for rollout in graded}, self._records(graded)
        )

    def _run(self, tasks: Sequence[Task], value: Any, number: int) -> list[Graded]:
        # The hash of the prompt and the tasks is in it, so that the journal of one prompt never
        # counts for another.
        name = f"{self.record.name}.{number}-{evaluation_key(tasks, value)}"
        flags = self._served(value, name)
        job = replace(
            self.job, tasks=tasks, name=name, seed=number, environment=flag_variables(flags)
        )
        try:
            report = run_agent(self.store, job, self.grading)
        except HopelessError as error:
            self.record.give_up()
            raise DataError(f"{error.problem} {ANEW}") from error
        if report.stopped or report.interrupted:
            raise DataError(
                f"Run '{name}' did not end ({report.stopped or 'interrupted'}). Run the same "
                "command again: the search goes on where it was."
            )
        if not report.rewards:
            raise self._without_rewards(report)
        return [Graded(name, report.tasks[name], reward) for name, reward in report.rewards.items()]

    def _without_rewards(self, report: Report) -> DataError:
        """Return the error that says whose fault it is: the agent's, or the grader's."""
        if not report.statuses.get(OK):
            # Failed rollouts are not run again, so the next start would end here, too.
            self.record.give_up()
            return DataError(
                f"No rollout of the search has a reward, because none ended well "
                f"({in_words(report.statuses)}). The last one said: "
                f"{self._end_of_output(report)}. {ANEW}"
            )
        problems = " ".join(f"Grading: {problem.rstrip('.')}." for problem in report.problems)
        if self.grading.has_grader:
            return DataError(
                f"No rollout of the search has a reward, though {report.statuses[OK]} of "
                f"{report.planned} ended well. {problems} Correct the grader, and run the same "
                "command again: they are graded again, and the search goes on."
            )
        self.record.give_up()
        return DataError(
            "No rollout of the search has a reward. Give a grader, or let the agent send rewards. "
            "The next start begins a new search."
        )

    def _end_of_output(self, report: Report) -> str:
        with open_store(self.store) as db:
            rows = read(db, __package__, "last_failure", run_id=report.run_id).to_dicts()
        if not rows:
            return "nothing"
        row = rows[0]
        words = " ".join((row["errors"] or "").split())[-QUOTED_CHARACTERS:]
        code = None if row["exit_code"] is None else f"code {row['exit_code']}"
        return ": ".join(part for part in (row["reason"] or code, words) if part) or "nothing"

    def _served(self, value: Any, name: str) -> Path:
        document = copy.deepcopy(flag_file.read_flag_file(self.flags, self.key))
        flag = document["flags"][self.key]
        arm = f"search-{sha256(json.dumps(value).encode()).hexdigest()[:8]}"
        # Without targeting, the default variant serves every request.
        flag.pop("targeting", None)
        flag["variants"] = {arm: value}
        flag |= {"state": "ENABLED", "defaultVariant": arm}
        flag["metadata"] = {f"{PROPENSITY}.{arm}": 1.0, POLICY_VERSION: f"run-{name}"}
        file = (self.record.folder or Path()).resolve() / f"{name}.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        return file

    def _records(self, graded: Sequence[Graded]) -> Mapping[str, Record]:
        rewards = {rollout.rollout_id: rollout.reward for rollout in graded}
        low, high = min(rewards.values()), max(rewards.values())
        # Below the middle is a failure. If all are equal, they are failures unless they reach 0.5.
        middle = (low + high) / 2 if low < high else max(low, 0.5)
        rows = pl.DataFrame(
            [
                {"rollout_id": rollout_id, "judged_as": rollout_id, "arm": "this", "outcome": value}
                for rollout_id, value in rewards.items()
            ]
        ).with_columns(failed=pl.col("outcome") < middle)
        tasks = {rollout.rollout_id: rollout.task_id for rollout in graded}
        with open_store(self.store) as db:
            records = make_records(db, Rollouts(rows, 1, 0), list(rewards))
        return {tasks[rollout]: record for rollout, record in records.items()}
