"""Workers that stay and run one attempt after the other.

This process gives them their tasks and reads their answers, since it outlives the runner: an answer
is in the journal even if the runner is killed in that moment.
"""

from __future__ import annotations

import json
import select
import time
from contextlib import suppress

from .pipes import Pipes
from .running import Running, end_record, unstarted

TYPE_CHECKING = False  # as in `main.py`
if TYPE_CHECKING:
    from typing import Any

    from .launcher import Launcher

NONE_LEFT = "workers"
"""Name of the result that reports that no worker is left."""


class Workers:
    """The workers that run, and the attempts that they work on."""

    def __init__(self, launcher: Launcher) -> None:
        """Begin without any worker.

        Args:
            launcher: Starts and ends them, and keeps the journal.
        """
        self._launcher = launcher
        self._running: dict[str, Running] = {}
        self._dismissed = False

    def ask(self, spec: dict[str, Any]) -> None:
        """Give a worker a task, and start it and those `beside` it if they do not run."""
        now = time.time_ns()
        self._launcher.note_started(spec, now)
        try:
            worker = self._running.get(spec["worker"]["id"]) or self._start(spec["worker"])
        except (OSError, ValueError) as error:
            self._launcher.report_end(unstarted(spec, now, error))
            return
        worker.attempt, worker.started_ns = spec, now
        worker.deadline = time.monotonic() + spec["timeout"]
        _pipes(worker).give(spec["line"])
        self._watch(worker)
        for other in spec.get("beside", ()):
            # An error of its start is reported with its first task.
            with suppress(OSError, ValueError):
                self._start(other)

    def exchange(self, ready: set[int]) -> None:
        """Read and write the pipes that are ready.

        Args:
            ready: File descriptors that can be read, or written without waiting.
        """
        for worker in list(self._running.values()):
            pipes = _pipes(worker)
            if pipes.answers in ready:
                self._take_answers(worker)
            if pipes.tasks in ready:
                pipes.write()
                self._watch(worker)

    def dismiss(self) -> None:
        """Let all workers end after the task that they have."""
        self._dismissed = True
        for worker in self._running.values():
            self.let_finish(worker)
        self._report_if_none_left()

    def let_finish(self, worker: Running) -> None:
        """Close a worker's input, and interrupt it if it does not end within its grace."""
        if worker.is_leaving:
            return
        worker.is_leaving = True
        pipes = _pipes(worker)
        if pipes.unwritten:  # it has not read its task
            self._launcher.end(worker, "interrupted")
            return
        pipes.end_tasks()
        worker.deadline = time.monotonic() + worker.spec["grace"]

    def has_ended(self, worker: Running, code: int) -> None:
        """Remove a worker that has ended; its attempt is lost if nobody ended the worker."""
        self._take_answers(worker)
        pipes, poll = _pipes(worker), self._launcher.poll
        for end in (pipes.answers, pipes.tasks):
            with suppress(KeyError, ValueError):
                poll.unregister(end)
        pipes.close()
        del self._running[worker.spec["id"]]
        if worker.attempt is not None:
            status = "lost" if worker.status == "exited" else worker.status
            reason = f"the worker ended, code {code}" if status == "lost" else None
            self._launcher.report_end(
                end_record(worker.attempt, status, worker.started_ns, reason=reason)
            )
        self._report_if_none_left()

    def _start(self, spec: dict[str, Any]) -> Running:
        pipes = Pipes()
        try:
            worker = self._launcher.start_worker(spec, pipes)
        except (OSError, ValueError):
            pipes.close()
            raise
        finally:
            pipes.close_worker_ends()
        self._running[spec["id"]] = worker
        self._launcher.poll.register(pipes.answers, select.POLLIN)
        return worker

    def _watch(self, worker: Running) -> None:
        """Let `poll` report that a worker's input takes more bytes, while some are unwritten."""
        pipes, poll = _pipes(worker), self._launcher.poll
        if pipes.unwritten:
            poll.register(pipes.tasks, select.POLLOUT)
        else:
            with suppress(KeyError):
                poll.unregister(pipes.tasks)

    def _take_answers(self, worker: Running) -> None:
        pipes = _pipes(worker)
        for answer in pipes.read():
            attempt = worker.attempt
            # An answer without an attempt, or one that comes too late, is ignored: the end of the
            # worker decides how the attempt ended.
            if attempt is None or worker.kill_at is not None:
                continue
            worker.attempt = None
            if not worker.is_leaving:
                worker.deadline = None
            output, error = output_of(answer)
            with open(attempt["stdout"], "wb") as file:  # noqa: PTH123 - `pathlib` is not imported
                file.write(output.encode("utf-8", "replace"))
            code = 0 if error is None else 1
            self._launcher.report_end(
                end_record(attempt, "exited", worker.started_ns, exit_code=code, reason=error)
            )
        if pipes.has_ended:
            with suppress(KeyError):
                self._launcher.poll.unregister(pipes.answers)
        if worker.attempt and pipes.partial_bytes > worker.attempt["max_output"]:
            self._launcher.end(worker, "output")

    def _report_if_none_left(self) -> None:
        if self._dismissed and not self._running:
            none = {"id": NONE_LEFT, "service": True}
            self._launcher.report_end(end_record(none, "exited", time.time_ns()))


def _pipes(worker: Running) -> Pipes:
    assert worker.pipes is not None  # noqa: S101 - a worker has them
    return worker.pipes


def output_of(answer: dict[str, Any]) -> tuple[str, str | None]:
    """Return the output of an answer, and why the agent failed, if it says so."""
    error = answer.get("error")
    output = answer.get("output", "" if isinstance(error, str) else answer)
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return text, error if isinstance(error, str) else None
