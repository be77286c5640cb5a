"""Attempts that the runner's end cut off, found in the store without the runner's journal."""

import time
from collections.abc import Sequence

from otel_lightning.collector.store.rows import Rows
from otel_lightning.learner.rollout_runner.attempts import LOST, Attempt, about
from otel_lightning.learner.rollout_runner.context import rows_of
from otel_lightning.learner.rollout_runner.engine.histories import (
    LOST_WITH_ITS_MACHINE,
    AttemptHistory,
)
from otel_lightning.learner.rollout_runner.launcher.journal import Journal, Started
from otel_lightning.learner.rollout_runner.launcher.processes import INTERRUPTED, Ended
from otel_lightning.learner.rollout_runner.plan import Job, Planned


def note_interrupted_elsewhere(
    job: Job,
    rollouts: Sequence[Planned],
    past: dict[str, AttemptHistory],
    journal: Journal,
    store: Rows,
) -> None:
    """Record attempts that have calls in the store but no end: a machine was lost with its journal.

    Run again under the same id, such a rollout would have the calls of both attempts.
    """
    open_ones = [rollout for rollout in rollouts if past[rollout.key].is_open(job.retries)]
    nexts = {rollout.rollout_id(len(past[rollout.key].ends)): rollout for rollout in open_ones}
    unstarted = [name for name in nexts if name not in journal.started]
    if not unstarted:
        return
    now = time.time_ns()
    for row in rows_of(store, "with_calls", rollouts=unstarted):
        planned = nexts[row["rollout_id"]]
        ends = past[planned.key].ends
        attempt = Attempt(planned, len(ends))
        details = about(journal.folder.name, job, attempt)
        journal.note_started(attempt.rollout_id, now, details)
        journal.started[attempt.rollout_id] = Started(now, details)
        cut = Ended(attempt.rollout_id, INTERRUPTED, now, now, reason=LOST_WITH_ITS_MACHINE)
        journal.note_ended(cut)
        journal.ended[attempt.rollout_id] = cut
        past[planned.key] = AttemptHistory([*ends, (LOST, True)])
