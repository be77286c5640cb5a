"""Run the attempts that are missing: start them, record how they ended, send that to the store."""

import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.attempts import (
    FAILED,
    MOST_OUTPUT,
    OK,
    Attempt,
    about,
    attempt_event,
    status_of,
)
from otel_lightning.learner.rollout_runner.engine.executors import Executor
from otel_lightning.learner.rollout_runner.engine.histories import AttemptHistory
from otel_lightning.learner.rollout_runner.ingester.receiver import Event, Receiver
from otel_lightning.learner.rollout_runner.launcher.journal import Journal, Started
from otel_lightning.learner.rollout_runner.launcher.output_files import end_on_one_line, is_longer
from otel_lightning.learner.rollout_runner.launcher.processes import INTERRUPTED, Ended
from otel_lightning.learner.rollout_runner.plan import Job, Planned
from otel_lightning.learner.rollout_runner.report import in_words

SEND_EVERY_SECONDS = 5.0
"""Interval between requests to the receiver: each is a transaction of the store, which takes 0.05
CPU-seconds. Until then the journal has the attempts."""
POLL_SECONDS = 0.2
SENT_AT_ONCE = 200
"""Most attempts in one request: each may have 24,000 characters of output."""
QUOTED_ERROR_CHARACTERS = 120
"""Characters of the end of standard error that are reported as the reason of a failure."""


class HopelessError(DataError):
    """The agent cannot be started, or none of its first attempts ended well."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(f"{problem} {advice}")
        self.problem = problem
        """The problem, without the advice for `lightning-learn run`."""


@dataclass(slots=True)
class Stop:
    """Ctrl-C: the first waits for the running attempts, the second ends them."""

    signals: int = 0
    """Number of signals received."""

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGINT or SIGTERM."""
        self.signals += 1


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Handle SIGINT and SIGTERM during the block, if this is the main thread."""
    stop = Stop()
    # Python allows signal handlers in the main thread only; in a notebook's or a loop's thread the
    # caller decides about Ctrl-C.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    previous_handlers = {number: signal.signal(number, stop.handle) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class Engine:
    """Runs the attempts of one job."""

    job: Job
    journal: Journal
    executor: Executor
    receiver: Receiver
    past: dict[str, AttemptHistory]
    """Earlier attempts, by the key of the planned rollout."""
    stop: Stop
    give_up_after: int = 20
    running: dict[str, Attempt] = field(default_factory=dict)
    unsent: list[Ended] = field(default_factory=list)
    sent_at: float = field(default_factory=time.monotonic)
    retried: int = 0
    interrupted: int = 0
    left_processes: int = 0
    shortened: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """Attempts of this start by status."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why attempts of this start were lost or failed."""
    told_to_wait: bool = False
    ended_by_us: bool = False

    def run(
        self, planned: Sequence[Planned], total: int, *, keeps_last: bool = False
    ) -> str | None:
        """Run every planned rollout that is open; return why it stopped early, if it did.

        Args:
            planned: The rollouts.
            total: Number of rollouts of the run, for the progress bar.
            keeps_last: Leave the last ends in `unsent`, for the caller to send with more.

        Raises:
            HopelessError: If the agent cannot be started, or the first attempts all fail.
        """
        progress = Progress("Rollouts", total)
        ended_rollouts = total - len(planned)
        waiting = deque(self._next(rollout) for rollout in planned)
        # Ends when nothing runs: either nothing waits, or a signal came and the running attempts
        # have ended.
        while self._start_some(waiting):
            self._handle_stop()
            self.receiver.look(self.journal.started[rollout_id].time for rollout_id in self.running)
            for ended in self.executor.ended(POLL_SECONDS):
                attempt = self._record_end(ended)
                # A lost attempt goes to the end of the queue, so that a passing fault has time to
                # pass.
                if self.past[attempt.planned.key].is_open(self.job.retries):
                    waiting.append(attempt.next())
                else:
                    ended_rollouts += 1
                progress.report(ended_rollouts, lambda: in_words(self.ends))
            self.send(if_due=True)
        if not keeps_last:
            self.send()
        return "Ctrl-C or SIGTERM" if self.stop.signals else None

    def send(self, *, if_due: bool = False) -> None:
        """Send the ends of attempts to the store.

        Args:
            if_due: Send only if there are many, or the last sending is long enough ago.
        """
        now = time.monotonic()
        # An ingester that was not needed yet is not started for the journal alone until then.
        is_short = len(self.unsent) < SENT_AT_ONCE or self.receiver.is_asleep
        is_too_early = is_short and now - self.sent_at < SEND_EVERY_SECONDS
        if not self.unsent or (if_due and is_too_early):
            return
        self.sent_at = now
        while self.unsent:
            # If sending fails, the journal still has these ends, and the next start sends them.
            batch, self.unsent = self.unsent[:SENT_AT_ONCE], self.unsent[SENT_AT_ONCE:]
            send_ended(batch, self.journal, self.receiver)

    def _start_some(self, waiting: deque[Attempt]) -> bool:
        """Start waiting attempts while there is room; return whether any runs."""
        while waiting and len(self.running) < self.job.jobs and not self.stop.signals:
            self._start(waiting.popleft())
        return bool(self.running)

    def _next(self, planned: Planned) -> Attempt:
        return Attempt(planned, len(self.past.get(planned.key, AttemptHistory()).ends))

    def _start(self, attempt: Attempt) -> None:
        self.retried += attempt.number > 0
        self.running[attempt.rollout_id] = attempt
        details = about(self.journal.folder.name, self.job, attempt)
        self.journal.started[attempt.rollout_id] = Started(time.time_ns(), details)
        self.executor.start(attempt)

    def _handle_stop(self) -> None:
        if self.stop.signals and not self.told_to_wait:
            self.told_to_wait = True
            attempts = number_of(len(self.running), "running attempt")
            sys.stderr.write(f"Waiting for {attempts} to end; Ctrl-C again cuts them off.\n")
        if self.stop.signals > 1 and not self.ended_by_us:
            self.ended_by_us = True
            self.executor.stop()

    def _record_end(self, ended: Ended) -> Attempt:
        attempt = self.running.pop(ended.rollout_id)
        status, reason = status_of(ended)
        cut = ended.status == INTERRUPTED
        if status == FAILED and not reason:
            last_output = end_on_one_line(
                self.journal.outputs / f"{ended.rollout_id}.err", QUOTED_ERROR_CHARACTERS
            )
            reason = f"it ended with code {ended.exit_code} and wrote: {last_output or 'nothing'}"
        if reason and not cut:
            self.reasons[f"{status}: {reason}"] += 1
        history = self.past.get(attempt.planned.key, AttemptHistory())
        self.past[attempt.planned.key] = AttemptHistory([*history.ends, (status, cut)])
        self.ends[status] += 1
        self.interrupted += cut
        self.left_processes += ended.left
        written = self.journal.outputs / f"{ended.rollout_id}.out"
        self.shortened += is_longer(written, MOST_OUTPUT)
        self.journal.ended[ended.rollout_id] = ended
        self.unsent.append(ended)
        # An attempt that Ctrl-C cut off says nothing about the agent.
        if not cut:
            self._give_up_if_hopeless(ended, status)
        return attempt

    def _give_up_if_hopeless(self, ended: Ended, status: str) -> None:
        """Stop a run whose agent cannot work: it would only use up all rollouts."""
        if self.ends[OK] or status == OK:
            return
        if ended.status == "not_started":
            problem = f"The agent cannot be started: {ended.reason}."
            advice = "Check the words after '--', or those of --serve."
        elif self.give_up_after and sum(self.ends.values()) >= self.give_up_after:
            # A worker or a server has the error in its answer, and a process on standard error.
            last_output = ended.reason or end_on_one_line(
                self.journal.outputs / f"{ended.rollout_id}.err"
            )
            problem = (
                f"None of the first {number_of(sum(self.ends.values()), 'attempt')} ended well "
                f"({in_words(self.ends)}). The last one said: {last_output or 'nothing'}."
            )
            advice = (
                "Correct the agent, and run the same command with --rerun failed --rerun timeout."
            )
        else:
            return
        self.executor.stop()
        self.send()
        raise HopelessError(problem, advice)


def send_ended(
    ends: Sequence[Ended], journal: Journal, receiver: Receiver, further: Sequence[Event] = ()
) -> None:
    """Send the ends of attempts, and note in the journal that they are in the store.

    Args:
        ends: How the attempts ended.
        journal: The journal of their run.
        receiver: Where to send.
        further: Further events for the same request, which is one transaction of the store.
    """
    started = journal.started
    attempts = [attempt_event(started[end.rollout_id].about, end, journal.outputs) for end in ends]
    receiver.send([*attempts, *further])
    journal.note_stored(end.rollout_id for end in ends)
