"""`lightning-learn run --dev`: check each link from the agent to learning, on two tasks.

The tasks are run in a store of their own, which is deleted afterwards, so that nothing of it is
learned from. A server (`--url`) sends its spans where it was told to when it started, so its tasks
are run in the store that receives them.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from otel_lightning.collector.store import Store, StoreError, open_store, read_server
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.rollout_runner.attempts import OK, TIMEOUT
from otel_lightning.learner.rollout_runner.dev_grader import graded_as_wrong, wrong_results
from otel_lightning.learner.rollout_runner.grade_run import POLL_SECONDS, SERVER_SECONDS
from otel_lightning.learner.rollout_runner.grading import Grading
from otel_lightning.learner.rollout_runner.plan import Job, runs_folder
from otel_lightning.learner.rollout_runner.report import Report, in_words
from otel_lightning.learner.rollout_runner.run import run_agent
from otel_lightning.learner.transitions.make import Settings, make_transitions

TASKS = 2
COMMAND, SERVE, URL = "command", "serve", "url"
PROCESS_REMEDIES = {
    COMMAND: "Correct the agent until it exits with 0.",
    SERVE: 'Correct the worker until it answers each line with one such as {"output": …}.',
    URL: "Correct the server until it answers with status 200.",
}
"""Remedy if a process does not end well, by the way in which the agent is run."""
SPANS_REMEDIES = {
    COMMAND: "Install otel-lightning in the environment of the agent's Python, and see that "
    "neither LIGHTNING_INSTRUMENT=false nor OTEL_SDK_DISABLED is set there. If it is installed, "
    "install the instrumentation of the agent's client or framework, too.",
    URL: "Install otel-lightning in the environment of the server, and start the server with "
    "OTEL_EXPORTER_OTLP_ENDPOINT set to the address of the lightning-ingest of this store, and "
    "OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf if that port speaks HTTP. The server's log tells "
    "what could not be sent.",
}
SPANS_REMEDIES[SERVE] = SPANS_REMEDIES[COMMAND]
"""Remedy if no span arrives."""
ROLLOUT_ID_REMEDIES = {
    COMMAND: "Install otel-lightning in the agent's environment; in other languages set the "
    "attribute from the variable LIGHTNING_ROLLOUT_ID (OTEL_RESOURCE_ATTRIBUTES does).",
    SERVE: "A worker runs many rollouts, so it names each: with rollout(task_id=task['id'], "
    "rollout_id=task['rollout_id']) around the work on each line.",
    URL: "The id is in the header `baggage` of each request: install the OpenTelemetry "
    "instrumentation of the server's web framework, or call rollout(…) with the id from there.",
}


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain, and whether it holds; None where that is unknown."""

    name: str
    holds: bool | None
    observation: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {True: "ok    ", False: "BROKEN", None: "  ?   "}[self.holds]
        return f"{mark} {self.name}: {self.observation}" + (
            f" {self.remedy}" if self.remedy else ""
        )


def _holding(name: str, observation: str) -> Link:
    return Link(name, holds=True, observation=observation)


def _broken(name: str, observation: str, remedy: str = "") -> Link:
    return Link(name, holds=False, observation=observation, remedy=remedy)


@dataclass(frozen=True, slots=True)
class DevRun:
    """The run of the two tasks: its report, the open store, and the rows of each attempt in it."""

    job: Job
    grading: Grading
    report: Report
    store: Store
    since: int
    """Start of the run, in Unix nanoseconds."""

    @property
    def rollouts(self) -> list[str]:
        """Ids of the attempts."""
        return list(self.report.tasks)

    @property
    def way(self) -> str:
        """How the agent is run."""
        return URL if self.job.url else SERVE if self.job.serve else COMMAND

    @property
    def calls(self) -> Sequence[Mapping[str, Any]]:
        """The model calls and arms of each attempt."""
        return read(self.store, __package__, "dev_calls", rollouts=self.rollouts).to_dicts()

    @property
    def spans(self) -> Sequence[Mapping[str, Any]]:
        """The spans that arrived, by the rollout that they name."""
        return read(self.store, __package__, "dev_spans", since=self.since).to_dicts()


def check_chain(job: Job, grading: Grading, store: Path | None = None) -> Iterator[Link]:
    """Run two tasks and check each link, up to the first one that is broken.

    Args:
        job: The job.
        grading: Its grader.
        store: The store that a server (`job.url`) sends to, which keeps the two rollouts.

    Raises:
        DataError: If the job or the grader cannot be used at all.
    """
    # One task after the other and without retries, so that the first problem is the one that is
    # seen.
    dev_job = replace(
        job, name="dev", limit=TASKS, samples=1, jobs=1, retries=0, shard=(1, 1), endpoint=None
    )
    if job.url:
        yield from _checked_in_store(replace(dev_job, name=f"dev-{token_hex(4)}"), grading, store)
        return
    with tempfile.TemporaryDirectory(prefix="lightning-dev-") as folder:
        yield from _checked(Path(folder) / "traces.duckdb", dev_job, grading)


def _checked_in_store(job: Job, grading: Grading, store: Path | None) -> Iterator[Link]:
    if store is None or read_server(store) is None:
        raise DataError(
            "A server behind --url sends its spans to a receiver of its own. Start it before: "
            f"{next_command('lightning-ingest serve', store)}"
        )
    try:
        yield from _checked(store, job, grading)
    finally:
        shutil.rmtree(runs_folder(store) / str(job.name), ignore_errors=True)


def _checked(path: Path, job: Job, grading: Grading) -> Iterator[Link]:
    since = time.time_ns()
    report = run_agent(path, job, grading)
    with open_store(path) as store:
        run = DevRun(job, grading, report, store, since)
        # In the order in which data passes the links: behind a broken one the others would break
        # too.
        for check in LINKS:
            link = check(run)
            yield link
            if link.holds is False:
                return


def _process(run: DevRun) -> Link:
    statuses = run.report.statuses
    if set(statuses) == {OK}:
        return _holding("process", f"ended well in {number_of(statuses[OK], 'rollout')}.")
    rows = read(run.store, __package__, "to_grade", rollouts=run.rollouts).to_dicts()
    bad = next((row for row in rows if row["status"] != OK), None)
    words = " ".join((bad["errors"] if bad else "").split())[-400:]
    reasons = [*run.report.reasons, *([f"it wrote: {words}"] if words else [])]
    told_why = f"Reason: {'; '.join(reasons) or 'it wrote nothing to standard error'}."
    remedy = PROCESS_REMEDIES[run.way]
    if TIMEOUT in statuses:
        remedy = f"It had {run.job.timeout:g} seconds: correct what hangs, or raise --timeout."
    return _broken("process", f"{in_words(statuses)}. {told_why}", remedy)


def _trace(run: DevRun) -> Link:
    rows = _arrived(run)
    spans_by_rollout = {
        row["rollout_id"]: row["spans"] for row in rows if row["rollout_id"] in run.rollouts
    }
    silent = [rollout for rollout in run.rollouts if rollout not in spans_by_rollout]
    if not silent:
        count = number_of(sum(spans_by_rollout.values()), "span")
        return _holding("trace", f"{count} arrived and name their rollout.")
    other_rows = [row for row in rows if row["rollout_id"] not in spans_by_rollout]
    if not other_rows and spans_by_rollout:
        return _broken(
            "trace",
            f"no span arrived from {len(silent)} of {number_of(len(run.rollouts), 'rollout')}.",
            "Its last spans were not sent: let it end by itself, not by os._exit or a signal.",
        )
    if not other_rows:
        return _broken("trace", "no span arrived.", SPANS_REMEDIES[run.way])
    other_id = next((row["rollout_id"] for row in other_rows if row["rollout_id"]), None)
    count = number_of(sum(row["spans"] for row in other_rows), "span")
    if other_id is None:
        return _broken(
            "rollout id",
            f"{count} arrived without lightning.rollout.id.",
            ROLLOUT_ID_REMEDIES[run.way],
        )
    return _broken(
        "rollout id",
        f"{count} arrived with the rollout id '{other_id}' instead of '{silent[0]}'.",
        "The agent sets lightning.rollout.id itself. Take that out, or let it use the variable "
        "LIGHTNING_ROLLOUT_ID."
        if run.way == COMMAND
        else ROLLOUT_ID_REMEDIES[run.way],
    )


def _arrived(run: DevRun) -> Sequence[Mapping[str, Any]]:
    """Return the spans that arrived; a server sends its last ones some seconds after its answer."""
    deadline = time.monotonic() + (SERVER_SECONDS if run.way == URL else 0)
    while True:
        rows = run.spans
        if {*run.rollouts} <= {row["rollout_id"] for row in rows} or time.monotonic() > deadline:
            return rows
        time.sleep(POLL_SECONDS)


def _model_calls(run: DevRun) -> Link:
    calls = run.calls
    without = [row["rollout_id"] for row in calls if not row["llm_calls"]]
    if not without:
        count = sum(row["llm_calls"] for row in calls)
        return _holding("model calls", f"{count} recorded.")
    writers = sorted({scope for row in run.spans for scope in row["scopes"] or ()})
    return _broken(
        "model calls",
        f"{len(without)} of {number_of(len(calls), 'rollout')} without one. The spans that "
        f"arrived were written by: {', '.join(writers) or 'nobody with a name'}.",
        "otel-lightning brings the instrumentation of the openai client alone. Install that of "
        "the agent's client or framework beside it, such as "
        "opentelemetry-instrumentation-anthropic.",
    )


def _task_id(run: DevRun) -> Link:
    other = [row for row in run.calls if row["recorded_task"] != row["task_id"]]
    if not other:
        return _holding("task id", "as given.")
    return _broken(
        "task id",
        f"'{other[0]['recorded_task']}' is recorded instead of '{other[0]['task_id']}'.",
        "The agent names tasks by itself: let it use LIGHTNING_TASK_ID.",
    )


def _arms(run: DevRun) -> Link:
    if run.job.arms is None:
        return Link("arms", None, "not asked for; give --arm to check them.")
    key, calls = run.job.arms.key, run.calls
    missing = [
        row
        for row in calls
        if f"{key}={run.report.arms[row['rollout_id']]}" not in (row["arms"] or [])
    ]
    if missing:
        return _broken(
            "arms",
            f"'{key}={run.report.arms[missing[0]['rollout_id']]}' was given, and recorded was "
            f"{', '.join(missing[0]['arms'] or ['no arm'])}.",
            "Evaluate the flag with OpenFeature and flagd's provider (it reads "
            "FLAGD_OFFLINE_FLAG_SOURCE_PATH), or make its variants objects for LIGHTNING_POLICY.",
        )
    if sum(row["without_propensity"] for row in calls):
        return _broken("arms", "recorded without a propensity.", "Update otel-lightning there.")
    return _holding("arms", "recorded with their propensities.")


def _tokens(run: DevRun) -> Link:
    rows = run.calls
    calls = sum(row["llm_calls"] for row in rows)
    tokens = sum(row["with_tokens"] for row in rows)
    if tokens == calls:
        return _holding("token ids", f"recorded for {number_of(calls, 'model call')}.")
    return Link(
        "token ids",
        None,
        f"recorded for {tokens} of {number_of(calls, 'model call')}.",
        "Weights learn without them from text; set LIGHTNING_REQUEST_TOKEN_IDS=true if the model "
        "is served by vLLM or lightning-learn serve.",
    )


def _reward(run: DevRun) -> Link:
    report = run.report
    if len(report.rewards) == report.planned:
        values = ", ".join(f"{value:g}" for value in report.rewards.values())
        return _holding("reward", f"{values}.")
    reason = " ".join(report.problems) or "The agent sent none."
    return _broken(
        "reward",
        f"{len(report.rewards)} of {number_of(report.planned, 'rollout')} graded. {reason}",
        "Correct the grader."
        if run.grading.has_grader
        else "Give --grade FILE.py:FUNCTION, --grade-command or --exit-code-is-reward, or send "
        "rewards: call evaluation_result() in the agent, or POST them to /v1/feedback.",
    )


def _wrong_answer(run: DevRun) -> Link:
    """Grade with a wrong expected result: an attempt that was right must score lower."""
    name, before = "wrong answer", run.report.rewards
    wrong = wrong_results(run.job, run.report)
    if not run.grading.has_grader or run.grading.by_exit_code or not wrong:
        return Link(name, None, "nothing to check: no grader reads what is expected.")
    after = graded_as_wrong(run.store, run.grading, wrong)
    if not after:
        reason = (
            "only a function in Python or a command is checked."
            if after is None
            else "the grader gave no score to another expected result."
        )
        return Link(name, None, reason)
    lower = [task for task in after if after[task] < before[task]]
    if lower:
        count = number_of(len(after), "rollout")
        return _holding(name, f"scores lower in {len(lower)} of {count}.")
    higher = [task for task in after if after[task] > before[task]]
    if higher:
        return _broken(
            name,
            f"it scores higher: {after[higher[0]]:g} instead of {before[higher[0]]:g}.",
            "The agent is wrong, or the grader gives more to wrong answers.",
        )
    if max(before.values()) <= 0:
        return Link(name, None, "the agent was right on no task, so it cannot be told.")
    return _broken(
        name,
        f"it gets the same scores: {', '.join(f'{before[one]:g}' for one in after)}.",
        "The grader does not compare with `expected`; or the agent was right on no task, and gets "
        "these scores for something else.",
    )


def _transitions(run: DevRun) -> Link:
    if run.way == URL:
        return Link("transitions", None, "not checked: it would build those of your own store.")
    reward = run.report.reward_name if run.grading.rule else None
    try:
        # Nothing is held out: two tasks may both fall into the held-out split.
        summary = make_transitions(run.store, Settings(reward=reward, held_out=0.0))
    except (DataError, StoreError) as error:
        return _broken("transitions", str(error))
    if summary.transitions:
        return _holding("transitions", f"{summary.transitions:,} to learn from.")
    return _broken("transitions", "none.", " ".join(str(summary).split()))


LINKS: Sequence[Callable[[DevRun], Link]] = (
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
