"""Run an unchanged agent on tasks, once for each sample, and grade its rollouts."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.load.position import wait_until_stored
from otel_lightning.collector.store.rows import Rows
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner import arms as arm_files
from otel_lightning.learner.rollout_runner import grading as graders
from otel_lightning.learner.rollout_runner.attempts import LOST, Attempt, task_event
from otel_lightning.learner.rollout_runner.context import (
    RunContext,
    rows_of,
    store_at_start,
)
from otel_lightning.learner.rollout_runner.engine.engine import Engine, send_ended, stoppable
from otel_lightning.learner.rollout_runner.engine.executors import (
    Executor,
    ExecutorSettings,
    ProcessExecutor,
)
from otel_lightning.learner.rollout_runner.engine.histories import (
    AttemptHistory,
    Due,
    due_rollouts,
    histories_of,
    last_id,
)
from otel_lightning.learner.rollout_runner.engine.interrupted import note_interrupted_elsewhere
from otel_lightning.learner.rollout_runner.grade_run import (
    EVENTS_PER_REQUEST,
    SERVER_SECONDS,
    check_served,
    grade_run,
)
from otel_lightning.learner.rollout_runner.grading import Graded, Grading
from otel_lightning.learner.rollout_runner.ingester.idle_ingester import Claim, claimed_for
from otel_lightning.learner.rollout_runner.ingester.receiver import (
    SEND_SECONDS,
    Receiver,
    reachable,
    receiving,
    receiving_when_needed,
)
from otel_lightning.learner.rollout_runner.launcher.journal import end_leftovers, opened_journal
from otel_lightning.learner.rollout_runner.launcher.processes import LauncherDiedError, Processes
from otel_lightning.learner.rollout_runner.plan import Job, Planned, journal_folder, plan, run_name
from otel_lightning.learner.rollout_runner.report import Report
from otel_lightning.learner.rollout_runner.tasks import (
    UNSPLIT,
    Task,
    copies_of,
    read_tasks,
    tasks_fingerprint,
    tasks_in_split,
)
from otel_lightning.learner.task_splits import HELD_OUT, TRAIN

NO_TASK = {
    UNSPLIT: "There is no task to run.",
    TRAIN: "All tasks are held out, so none is left to run. Give more tasks, or lower --held-out.",
    HELD_OUT: "No task is held out, so none is left to run. Give more tasks, or raise --held-out.",
}
"""The error if a split has no task."""


def run_agent(
    store: str | Path, job: Job, grading: Grading | None = None, *, owns_process: bool = False
) -> Report:
    """Run an agent on tasks and grade its rollouts. The same call again runs missing rollouts.

    Spans, tasks and attempts go to the `lightning-ingest` that serves the store; if none does, one
    is started when it is needed, and ended with the run: quick agents that send nothing do without.
    The journal of the run is in the folder `STORE.runs`.

    Args:
        store: Path of the store, which is created if it does not exist.
        job: The agent, its tasks and the limits.
        grading: How rollouts get their rewards; by default by the events that the agent sends.
        owns_process: Whether nothing else runs in this process, as in the command: then pandas may
            be left out of it.

    Returns:
        How the rollouts ended, and their rewards; none if the job's shard has no rollout.

    Raises:
        DataError: If a task, the command or the grader cannot be used. If the agent cannot be
            started, or none of its first attempts ends well, the run stops with it too.
        StoreError: If the store cannot be read or written.
    """
    store, grading = Path(store), grading or Grading()
    _check(job)
    graders.check(grading)
    tasks, name = tasks_of(job), run_name(job)
    if not tasks:
        raise DataError(NO_TASK[job.split])
    arm_prints = arm_files.fingerprints(job.arms) if job.arms else {}
    rollouts = list(plan(job, tasks, arm_prints))
    if not rollouts:
        # More shards than rollouts, as in a SLURM array of fixed size, are no mistake.
        return Report(name, planned=0, done_before=0, statuses={}, rewards={})
    return _run_planned(store, job, grading, rollouts, owns_process=owns_process)


def _run_planned(
    store: Path, job: Job, grading: Grading, rollouts: Sequence[Planned], *, owns_process: bool
) -> Report:
    """Run rollouts with the journal of their run, a process that starts agents, and a receiver."""
    folder = journal_folder(store, job)
    with opened_journal(folder) as (journal, lock):
        end_leftovers(folder)
        # In this order: no agent of a killed runner is alive any more, so what has no end in the
        # journal never will.
        journal.note_interrupted()
        try:
            with (
                claimed_for(
                    store, job, has_rule=bool(grading.rule), owns_process=owns_process
                ) as claim,
                # The launcher inherits the locks: if this process is killed, the next start waits
                # until the launcher has ended its agents.
                Processes(
                    journal.path, [lock.fileno(), *(claim.held if claim else ())]
                ) as processes,
                _receiving(store, job, processes, folder, claim) as receiver,
            ):
                context = RunContext(
                    store, journal, processes, receiver, bool(job.endpoint), job.store_timeout
                )
                return _run(job, grading, rollouts, context)
        except LauncherDiedError as error:
            end_leftovers(folder)
            raise DataError(
                f"The process that starts the agents was killed ({error}). The journal is whole: "
                "run the same command again."
            ) from error


def _receiving(
    store: Path, job: Job, processes: Processes, folder: Path, claim: Claim | None
) -> AbstractContextManager[Receiver]:
    patience = max(SEND_SECONDS, job.store_timeout)  # it is busy, and may go on soon
    if claim is None:
        return receiving(store, processes, folder, job.endpoint, patience)
    return receiving_when_needed(store, processes, folder, claim, patience)


def tasks_of(job: Job) -> list[Task]:
    """Return the tasks that a job runs, from its file or as given."""
    source = job.tasks
    tasks = read_tasks(source).tasks if isinstance(source, Path) else tuple(source)
    return tasks_in_split(tasks, job.split, job.held_out)[: job.limit]


def _check(job: Job) -> None:
    ways = [bool(job.command), bool(job.url), bool(job.serve)]
    if sum(ways) != 1:
        raise DataError(
            "Say how to run the agent: a command after '--', or --url, or --serve; one of them."
        )
    number, count = job.shard
    if not 1 <= number <= count:
        raise DataError(
            f"There is no shard {number} of {count}. Write 1/{count} to {count}/{count}."
        )
    if count > 1 and job.endpoint and job.name is None:
        # The default name has the path of the task file in it, which machines need not share.
        raise DataError(
            "The parts of a run on several machines need a name that they share. Give each the "
            "same --name NAME."
        )
    if job.ray and not job.command:
        raise DataError("--ray runs a command: give it after --.")
    if job.arms:
        arm_files.check(job.arms)
    if job.endpoint:
        reachable(job.endpoint)


def _run(job: Job, grading: Grading, rollouts: Sequence[Planned], context: RunContext) -> Report:
    with ExitStack() as connections:
        opened = connections.enter_context(store_at_start(context))
        if opened is not None and opened.server is not None:
            # Another machine may have sent attempts a moment ago: they must not run again.
            wait_until_stored(opened, context.store, job.store_timeout)
        past = histories_of(rollouts, context.journal, opened)
        if opened is not None and job.name is not None:
            # Without a name of its own, a run is on one machine only.
            note_interrupted_elsewhere(job, rollouts, past, context.journal, opened)
        _send_tasks([rollout.task for rollout in rollouts], context.receiver, opened)
        if job.endpoint:
            # It was not asked before: a wrong token has to be reported before an agent runs.
            context.receiver.send_held()
        if opened is not None and opened.server is not None:
            context.connection = opened
        else:
            connections.close()  # others may need the file while the agents run
        return _run_and_grade(job, grading, rollouts, past, context)


class _Ended(NamedTuple):
    """The rollouts of a run after their attempts."""

    due: Due
    engine: Engine
    stopped: str | None
    """Why the engine stopped early; None if it did not."""
    by_id: dict[str, Planned]
    """Each rollout by its id, which is the id of its last attempt."""

    @property
    def histories(self) -> dict[str, AttemptHistory]:
        """The attempts of each rollout, by its id."""
        return {rollout: self.engine.past[planned.key] for rollout, planned in self.by_id.items()}

    @property
    def statuses(self) -> dict[str, str]:
        """Status of each rollout that was attempted, by its id."""
        return {
            rollout: history.status
            for rollout, history in self.histories.items()
            if history.status is not None
        }


def _run_and_grade(
    job: Job,
    grading: Grading,
    rollouts: Sequence[Planned],
    past: dict[str, AttemptHistory],
    context: RunContext,
) -> Report:
    # Ends that a killed runner noted and did not send. They are sent before any agent starts.
    if unsent := context.journal.unsent():
        send_ended(unsent, context.journal, context.receiver)
    due = due_rollouts(job, rollouts, past)
    engine, stopped = _run_due(job, grading, due, past, context)
    context.journal.forget_inputs()
    by_id = {last_id(planned, engine.past): planned for planned in rollouts}
    ended = _Ended(due, engine, stopped, by_id)
    statuses = ended.statuses
    if job.url and job.arms:
        requested_arms = {
            rollout: planned.arm or ""
            for rollout, planned in by_id.items()
            if statuses.get(rollout, LOST) != LOST
        }
        check_served(job.arms.key, requested_arms, context)
    patience = SERVER_SECONDS if job.url else 0.0
    graded, silent = grade_run(context, grading, statuses, patience, engine.unsent)
    return _report(context.journal.folder.name, job, ended, graded, silent)


def _report(run_id: str, job: Job, ended: _Ended, graded: Graded, silent: int) -> Report:
    """Describe how a run ended.

    Args:
        run_id: Id of the run.
        job: The agent and its limits.
        ended: The rollouts after their attempts.
        graded: Their rewards.
        silent: Number of rollouts without a model call.
    """
    due, engine, by_id, histories = ended.due, ended.engine, ended.by_id, ended.histories
    tasks = {rollout: planned.task for rollout, planned in by_id.items()}
    return Report(
        run_id=run_id,
        planned=len(by_id),
        done_before=len(by_id) - len(due.open) - len(due.rerun),
        statuses=Counter(ended.statuses.values()),
        rewards=graded.rewards,
        reward_name=graded.name,
        interrupted=engine.interrupted,
        retried=engine.retried,
        worked_on_twice=due.cut_off if job.url else 0,
        given_up=sum(
            history.status == LOST and not history.is_open(job.retries)
            for history in histories.values()
        ),
        left_processes=engine.left_processes,
        shortened=engine.shortened,
        silent=silent,
        stopped=ended.stopped,
        problems=tuple(graded.problems),
        reasons=dict(engine.reasons.most_common()),
        without_id=len({task.task_id for task in tasks.values() if not task.has_own_id}),
        tasks={rollout: task.task_id for rollout, task in tasks.items()},
        samples={rollout: planned.sample for rollout, planned in by_id.items()},
        arms={rollout: planned.arm for rollout, planned in by_id.items()},
        arm_names=tuple(job.arms.names) if job.arms else (),
        copies=copies_of(tasks.values()),
        second_chances=frozenset(
            rollout for rollout, history in histories.items() if history.had_second_chance
        ),
        fingerprint=tasks_fingerprint(tasks.values()),
    )


def _run_due(
    job: Job,
    grading: Grading,
    due: Due,
    past: dict[str, AttemptHistory],
    context: RunContext,
) -> tuple[Engine, str | None]:
    """Run the rollouts that are due.

    Returns:
        The engine with the results, and why it stopped early, if it did. Ends of attempts that are
        to be sent together with the rewards are in `Engine.unsent`.
    """
    if (due.open or due.rerun) and not (job.url or job.endpoint):
        # The runner has the token of the server file, agents have not. A server (`--url`) sends
        # with headers of its own.
        context.receiver.check_agents()
    executor = _executor(job, context)
    with closing(executor), stoppable() as stop:
        for planned in due.open:
            # All tasks are checked before the first one runs, so that no run fails halfway for a
            # bad task.
            executor.check(Attempt(planned))
        engine = Engine(job, context.journal, executor, context.receiver, past, stop)
        # Rewards by exit code are known by then: they go with the last ends in one request.
        # An ingester that was never needed is not started for the last ends either.
        keeps_last = context.receiver.is_asleep or (grading.by_exit_code and context.store.exists())
        stopped = engine.run([*due.open, *due.rerun], len(past), keeps_last=keeps_last)
        if not keeps_last:
            context.receiver.send_held()
    return engine, stopped


def _executor(job: Job, context: RunContext) -> Executor:
    """Choose the way to run the agent."""
    name, folder = context.journal.folder.name, context.journal.folder
    service = os.environ.get("OTEL_SERVICE_NAME", name)
    telemetry = {"OTEL_SERVICE_NAME": service, **context.receiver.environment()}
    flags = arm_files.write_flags(job.arms, name, folder) if job.arms and not job.url else {}
    settings = ExecutorSettings(job, context.journal, telemetry, flags)
    # Only the one that is used is imported.
    if job.url:
        from otel_lightning.learner.rollout_runner.engine.servers import UrlExecutor

        return UrlExecutor(settings)
    if job.serve:
        from otel_lightning.learner.rollout_runner.engine.workers import WorkerExecutor

        return WorkerExecutor(settings, context.processes)
    if job.ray:
        from otel_lightning.learner.rollout_runner.engine.ray_cluster import RayExecutor

        return RayExecutor(settings)
    return ProcessExecutor(settings, context.processes)


def _send_tasks(tasks: Sequence[Task], receiver: Receiver, store: Rows | None) -> None:
    """Send the tasks that the store lacks; the last ones wait for the first ends of attempts.

    A request is a transaction of the store, which takes 0.05 CPU-seconds, and nobody needs the
    tasks before. If this process is killed first, the next start sends them.
    """
    stored_fingerprints: dict[str, str] = {}
    if store is not None:
        rows = rows_of(store, "known_tasks")
        stored_fingerprints = {row["task_id"]: row["fingerprint"] for row in rows}
    distinct = {task.task_id: task for task in tasks}
    new = [
        task
        for task in distinct.values()
        if stored_fingerprints.get(task.task_id) != task.whole_fingerprint
    ]
    now = time.time_ns()
    for start in range(0, len(new), EVENTS_PER_REQUEST):
        receiver.send_held()
        receiver.held.extend(
            task_event(task, now) for task in new[start : start + EVENTS_PER_REQUEST]
        )
