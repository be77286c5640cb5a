"""`lightning-learn run --dev`: check each link from the agent to learning, on two tasks.

The tasks are run in a store of their own, which is deleted afterwards, so that nothing of it is
learned from.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from otel_lightning.collector.store import Store, StoreError, open_store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.rollout_runner.attempts import OK
from otel_lightning.learner.rollout_runner.grading import Grading, answer_of
from otel_lightning.learner.rollout_runner.plan import Job
from otel_lightning.learner.rollout_runner.report import Report, told
from otel_lightning.learner.rollout_runner.run import run_agent
from otel_lightning.learner.score.rules import python
from otel_lightning.learner.score.rules.frames import scan
from otel_lightning.learner.score.rules.results import aligned, as_scores
from otel_lightning.learner.score.rules.spec import read_rule
from otel_lightning.learner.transitions.make import Settings, make_transitions

TASKS = 2
WRONG = "deliberately wrong: 4711-0815"
"""An expected answer that no agent gives."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain, and whether it holds; None where it could not be told."""

    name: str
    holds: bool | None
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {True: "ok    ", False: "BROKEN", None: "  ?   "}[self.holds]
        return f"{mark} {self.name}: {self.found}" + (f" {self.remedy}" if self.remedy else "")


def _holding(name: str, found: str) -> Link:
    return Link(name, holds=True, found=found)


def _broken(name: str, found: str, remedy: str = "") -> Link:
    return Link(name, holds=False, found=found, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Found:
    """The results of the two tasks: the report, the open store, and each attempt's rows in it."""

    job: Job
    grading: Grading
    report: Report
    store: Store
    calls: Sequence[Mapping[str, Any]]

    @property
    def rollouts(self) -> list[str]:
        """Ids of the attempts."""
        return list(self.report.tasks)


def check_chain(job: Job, grading: Grading) -> Iterator[Link]:
    """Run two tasks and check each link, up to the first one that is broken.

    Raises:
        DataError: If the job or the grader cannot be used at all.
    """
    # One task after the other and without retries, so that the first problem is the one that is
    # seen.
    ours = replace(
        job, name="dev", limit=TASKS, samples=1, jobs=1, retries=0, shard=(1, 1), endpoint=None
    )
    with tempfile.TemporaryDirectory(prefix="lightning-dev-") as folder:
        path = Path(folder) / "traces.duckdb"
        report = run_agent(path, ours, grading)
        with open_store(path) as store:
            calls = read(store, __package__, "dev_calls", rollouts=list(report.tasks)).to_dicts()
            found = Found(ours, grading, report, store, calls)
            # In the order in which data passes the links: behind a broken one the others would
            # break too.
            for check in LINKS:
                link = check(found)
                yield link
                if link.holds is False:
                    return


def _process(found: Found) -> Link:
    statuses = found.report.statuses
    if set(statuses) == {OK}:
        return _holding("process", f"ended well on {statuses[OK]} tasks.")
    rows = read(found.store, __package__, "to_grade", rollouts=found.rollouts).to_dicts()
    bad = next((row for row in rows if row["status"] != OK), None)
    words = " ".join((bad["errors"] if bad else "").split())[-400:]
    remedy = f"It wrote: {words or 'nothing'}. Mend the agent until it exits with 0."
    return _broken("process", f"{told(statuses)}.", remedy)


def _trace(found: Found) -> Link:
    row = read(found.store, __package__, "dev_spans", rollouts=found.rollouts).to_dicts()[0]
    if row["named"]:
        return _holding("trace", f"{row['named']} spans arrived and name their rollout.")
    if row["spans"]:
        return _broken(
            "rollout id",
            f"{row['spans']} spans arrived, and none has lightning.rollout.id.",
            "Install otel-lightning in the agent's environment; in other languages set the "
            "attribute from the variable LIGHTNING_ROLLOUT_ID (OTEL_RESOURCE_ATTRIBUTES does).",
        )
    return _broken(
        "trace",
        "no span arrived.",
        "Install otel-lightning in the environment of the agent's Python, and see that neither "
        "LIGHTNING_INSTRUMENT=false nor OTEL_SDK_DISABLED is set there. See docs/how-to/"
        "trace-your-agent.md.",
    )


def _model_calls(found: Found) -> Link:
    without = [row["rollout_id"] for row in found.calls if not row["llm_calls"]]
    if not without:
        count = sum(row["llm_calls"] for row in found.calls)
        return _holding("model calls", f"{count} recorded.")
    return _broken(
        "model calls",
        f"{len(without)} of {len(found.calls)} rollouts have none.",
        "Its client or framework needs an instrumentation: docs/how-to/which-package.md says "
        "which. `lightning-ingest doctor` names spans that nothing reads.",
    )


def _task_id(found: Found) -> Link:
    other = [row for row in found.calls if row["recorded_task"] != row["task_id"]]
    if not other:
        return _holding("task id", "as given.")
    return _broken(
        "task id",
        f"'{other[0]['recorded_task']}' is recorded instead of '{other[0]['task_id']}'.",
        "The agent names tasks by itself: let it use LIGHTNING_TASK_ID.",
    )


def _arms(found: Found) -> Link:
    if found.job.arms is None:
        return Link("arms", None, "not asked for; give --arm to check them.")
    key, seen = found.job.arms.key, found.calls
    missing = [
        row
        for row in seen
        if f"{key}={found.report.arms[row['rollout_id']]}" not in (row["arms"] or [])
    ]
    if missing:
        return _broken(
            "arms",
            f"'{key}={found.report.arms[missing[0]['rollout_id']]}' is not recorded, but "
            f"{missing[0]['arms'] or 'no arm'}.",
            "Evaluate the flag with OpenFeature and flagd's provider (it reads "
            "FLAGD_OFFLINE_FLAG_SOURCE_PATH), or make its variants objects for LIGHTNING_POLICY.",
        )
    if sum(row["without_propensity"] for row in seen):
        return _broken("arms", "recorded without a propensity.", "Update otel-lightning there.")
    return _holding("arms", "recorded with their propensities.")


def _tokens(found: Found) -> Link:
    calls = sum(row["llm_calls"] for row in found.calls)
    tokens = sum(row["with_tokens"] for row in found.calls)
    if tokens == calls:
        return _holding("token ids", f"with all {calls} calls.")
    return Link(
        "token ids",
        None,
        f"with {tokens} of {calls} calls.",
        "Weights learn without them from text; set LIGHTNING_REQUEST_TOKEN_IDS=true if the model "
        "is served by vLLM or lightning-learn serve.",
    )


def _reward(found: Found) -> Link:
    report = found.report
    if len(report.rewards) == report.planned:
        values = ", ".join(f"{value:g}" for value in report.rewards.values())
        return _holding("reward", f"{values}.")
    why = " ".join(report.problems) or "The agent sent none."
    return _broken(
        "reward",
        f"{len(report.rewards)} of {report.planned} rollouts have one. {why}",
        "Give --grade FILE.py:FUNCTION, --grade-command or --exit-code-is-reward, or send "
        "rewards: docs/how-to/send-feedback.md.",
    )


def _wrong_answer(found: Found) -> Link:
    """Grade with a wrong expected result: an attempt that was right must score lower."""
    asked = read(found.store, __package__, "to_grade", rollouts=found.rollouts).to_dicts()
    expecting = [row["rollout_id"] for row in asked if (row["expected"] or "null") != "null"]
    if not found.grading.is_given or found.grading.by_exit_code or not expecting:
        return Link("wrong answer", None, "nothing to check: no grader reads what is expected.")
    before = found.report.rewards
    after = _graded_as_wrong(found, asked)
    if after is None:
        return Link("wrong answer", None, "only a function in Python or a command is checked.")
    # A rollout that the grader now fails on counts as unchanged.
    lower = [one for one in expecting if after.get(one, before[one]) < before[one]]
    if lower:
        return _holding("wrong answer", f"scores lower on {len(lower)} of {len(expecting)} tasks.")
    if max(before[one] for one in expecting) <= min(after.values(), default=0.0):
        best = max(before[one] for one in expecting)
        if best <= 0:
            return Link(
                "wrong answer", None, "the agent was right on no task, so it cannot be told."
            )
    return _broken(
        "wrong answer",
        f"another expected answer ('{WRONG}') gets the same scores.",
        "The grader does not compare with `expected`.",
    )


def _graded_as_wrong(found: Found, asked: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    grading = found.grading
    if grading.command:
        answers = {
            row["rollout_id"]: answer_of(grading.command, {**row, "expected": json.dumps(WRONG)})
            for row in asked
        }
        return {one: float(a["value"]) for one, a in answers.items() if not isinstance(a, str)}
    rule = read_rule(grading.rule or "")
    if rule.path.suffix != ".py":
        return None
    function = python.load(rule)
    if function.wants != "rollouts":
        return None
    frame = scan(found.store, "rollouts", found.rollouts)
    frame = frame.collect().with_columns(expected=pl.lit(WRONG)).lazy()
    result = aligned(rule, function(frame), frame.select("rollout_id"))
    scores = as_scores(rule, result).filter(pl.col("value").is_not_null())
    return dict(scores.select("rollout_id", "value").iter_rows())


def _transitions(found: Found) -> Link:
    reward = found.report.reward_name if found.grading.rule else None
    try:
        # Nothing is held out: two tasks may both fall into the held-out split.
        summary = make_transitions(found.store, Settings(reward=reward, held_out=0.0))
    except (DataError, StoreError) as error:
        return _broken("transitions", str(error))
    if summary.transitions:
        return _holding("transitions", f"{summary.transitions} to learn from.")
    return _broken("transitions", "none.", " ".join(str(summary).split()))


LINKS: Sequence[Callable[[Found], Link]] = (
    _process,
    _trace,
    _model_calls,
    _task_id,
    _arms,
    _tokens,
    _reward,
    _wrong_answer,
    _transitions,
)
