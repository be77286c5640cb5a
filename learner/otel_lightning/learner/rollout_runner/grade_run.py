"""The end of a run: wait until its telemetry is stored and derived, and grade its rollouts."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from otel_lightning.collector.load.position import wait_until_derived
from otel_lightning.collector.store import StoreError
from otel_lightning.collector.store.rows import Rows
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner import arms as arm_files
from otel_lightning.learner.rollout_runner import grading as graders
from otel_lightning.learner.rollout_runner.context import RunContext, rows_of, store_at_end
from otel_lightning.learner.rollout_runner.engine.engine import send_ended
from otel_lightning.learner.rollout_runner.grading import Graded, Grading
from otel_lightning.learner.rollout_runner.ingester.receiver import Event
from otel_lightning.learner.rollout_runner.launcher.processes import Ended

if TYPE_CHECKING:
    from otel_lightning.collector.store import Store

EVENTS_PER_REQUEST = 500
"""Largest number of events in one request, which is one transaction of the store."""
SERVER_SECONDS = 8.0
"""A server outlives the run, and OpenTelemetry sends its last spans up to 5 seconds later."""
POLL_SECONDS = 0.3
"""Interval of the questions whether the telemetry has arrived."""


def grade_run(
    context: RunContext,
    grading: Grading,
    statuses: Mapping[str, str],
    patience: float,
    unsent: list[Ended],
) -> tuple[Graded, int]:
    """Wait until everything is stored and derived, and grade.

    Args:
        context: The store, and how to reach it.
        grading: How rollouts get their rewards.
        statuses: Status of each rollout, by its id.
        patience: Seconds to wait for the calls of some rollouts, if others have theirs.
        unsent: Ends of attempts that are not in the store yet; they are sent with the rewards.

    Returns:
        The rewards, and the number of rollouts without a model call.
    """
    store = context.store
    if not store.exists() and context.receiver.idle is None:
        name = context.journal.folder.name
        problem = (
            "The store is elsewhere: grade there. Give this command where the store is, with "
            f"--name {name} and without --endpoint and --shard: what has ended does not run again."
        )
        return Graded(None, problems=[problem]), 0
    # Exit codes are known without the store, so their rewards are stored and derived together with
    # the attempts.
    is_known = grading.by_exit_code
    with store_at_end(context) as opened:
        if not is_known:
            context.receiver.send_held()
            if unsent:
                send_ended(unsent, context.journal, context.receiver)
        silent = 0 if is_known else _silent(opened, context, list(statuses), patience)

        def send(events: list[Event]) -> None:
            if unsent and is_known:
                send_ended(unsent, context.journal, context.receiver, events[:EVENTS_PER_REQUEST])
                events = events[EVENTS_PER_REQUEST:]
            for start in range(0, len(events), EVENTS_PER_REQUEST):
                context.receiver.send(events[start : start + EVENTS_PER_REQUEST])
            context.receiver.send_held()
            _derive(opened, context)

        try:
            graded = graders.grade(opened, store, grading, statuses, send)
        except (DataError, StoreError) as error:
            if context.journal.unsent():
                raise  # rewards can be given later, but the ends of attempts have to be sent
            graded = Graded(None, problems=[str(error)])
        if is_known:
            silent = _silent(opened, context, list(statuses), patience)
        return graded, silent


def check_served(key: str, requested: Mapping[str, str], context: RunContext) -> None:
    """Compare the arms in the traces with those that a server was asked for.

    Raises:
        DataError: If it served others.
    """
    if not context.store.exists():
        return  # the same command where the store is checks it
    deadline = time.monotonic() + SERVER_SECONDS
    with store_at_end(context) as opened:
        while True:
            _derive(opened, context)
            rows = rows_of(opened, "served_arms", rollouts=list(requested), key=key)
            with_arm = {row["rollout_id"] for row in rows}
            if len(with_arm) == len(requested) or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
    arm_files.check_served(rows, requested, key)


def _silent(opened: Rows, context: RunContext, rollouts: list[str], patience: float) -> int:
    """Update the derived tables; return the number of rollouts without a model call.

    Args:
        opened: The open store.
        context: Its path, and how long to wait for its ingester.
        rollouts: The rollouts.
        patience: Seconds to wait for the calls of some of them, if others have theirs.
    """
    deadline = time.monotonic() + patience
    while True:
        _derive(opened, context)
        silent = len(rows_of(opened, "silent", rollouts=rollouts))
        # If no rollout has a call though the first one ended long ago, the agent is not traced at
        # all, and waiting would not help.
        first = min((end.ended for end in context.journal.ended.values()), default=0)
        untraced = silent == len(rollouts) and time.time_ns() > first + patience * 1e9
        if not silent or untraced or time.monotonic() > deadline:
            return silent
        time.sleep(POLL_SECONDS)


def _derive(opened: Rows, context: RunContext) -> None:
    """Update the derived tables, which the ingester does where one runs."""
    if opened.server:
        wait_until_derived(opened, context.store, context.store_timeout)
        return
    # Without an ingester, `opened` is the file itself. What derives spans takes 0.2 CPU-seconds to
    # import, as long as 50 rollouts cost.
    from otel_lightning.collector.refresh.logs_without_trace import derive_without_spans

    store = cast("Store", opened)
    if not derive_without_spans(store):
        from otel_lightning.collector.load.from_files import derive_all

        derive_all(store, context.store)
