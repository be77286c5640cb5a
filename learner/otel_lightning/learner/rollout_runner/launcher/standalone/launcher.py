"""Starts processes, enforces their limits, and reports their ends."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from contextlib import suppress

from .process_tree import children, ended_child, send_signal
from .running import Running, end_record, unstarted
from .spawn import spawn

TYPE_CHECKING = False  # as in `main.py`
if TYPE_CHECKING:
    from typing import Any

    from .pipes import Pipes
    from .workers import Workers


class Launcher:
    """Starts processes and reports their ends."""

    def __init__(self, journal: int | None) -> None:
        """Begin without any process.

        Args:
            journal: File descriptor to append starts and ends to; None for no journal.
        """
        self.journal = journal
        self.running: dict[int, Running] = {}
        self.left_behind: dict[int, float] = {}
        """Processes whose agent has ended, by id: the time at which each is killed."""
        self.closing = False
        self.poll = select.poll()
        self.workers: Workers | None = None

    def start(self, spec: dict[str, Any]) -> None:
        """Start one process, which the journal has before it can act."""
        now = time.time_ns()
        if not spec.get("service"):
            # Before the process exists: an agent that runs is then always in the journal, even if
            # this process is killed in the next moment.
            self.note_started(spec, now)
        try:
            pid = spawn(spec)
        except (OSError, ValueError) as error:
            self.report_end(unstarted(spec, now, error))
            return
        limit = spec.get("timeout")
        deadline = None if limit is None else time.monotonic() + limit
        self.running[pid] = Running(spec, pid, now, deadline)

    def start_worker(self, spec: dict[str, Any], pipes: Pipes) -> Running:
        """Start a worker with these pipes.

        Raises:
            OSError: If it cannot be started.
        """
        pid = spawn(spec, pipes.worker_ends)
        process = self.running[pid] = Running(spec, pid, 0, None)
        process.pipes = pipes
        return process

    def ask_worker(self, spec: dict[str, Any]) -> None:
        """Give a worker an attempt."""
        if self.workers is None:
            from .workers import Workers  # most runs have none

            self.workers = Workers(self)
        self.workers.ask(spec)

    def stop(self, spec: dict[str, Any]) -> None:
        """Ask one process to end, or all agents if none is named."""
        name = spec["id"]
        for process in list(self.running.values()):
            if process.spec["id"] == name or (name is None and not process.is_service):
                self.end(process, "interrupted")

    def reap(self) -> None:
        """Report every process that has ended."""
        while pid := ended_child():
            process = self.running.get(pid)
            # Until it is waited for, its id and its group cannot be another's.
            leftovers = self._end_leftovers(process) if process else 0
            _, status, usage = os.wait4(pid, 0)
            self.left_behind.pop(pid, None)
            if process is None:
                continue
            del self.running[pid]
            code = os.waitstatus_to_exitcode(status)
            if self.workers and process.pipes:
                self.workers.has_ended(process, code)
                continue
            self.report_end(
                end_record(
                    process.spec,
                    process.status,
                    process.started_ns,
                    exit_code=code if code >= 0 else None,
                    signal=-code if code < 0 else None,
                    left=leftovers,
                    cpu_seconds=round(usage.ru_utime + usage.ru_stime, 3),
                )
            )

    def enforce_limits(self) -> None:
        """End processes that are slow, write too much or were left behind; kill those that stay."""
        now = time.monotonic()
        for pid, process in list(self.running.items()):
            # `kill_at` is set by the first SIGTERM. From then on only its deadline counts, not the
            # others.
            if process.kill_at is not None:
                if now >= process.kill_at:
                    send_signal(pid, signal.SIGKILL, os.killpg)
            elif process.deadline is not None and now >= process.deadline:
                self.end(process, "interrupted" if process.is_leaving else "timeout")
            elif _has_too_much_output(process.spec):
                self.end(process, "output")
        for pid, kill_at in self.left_behind.items():
            if now >= kill_at:
                send_signal(pid, signal.SIGKILL)
        self._find_orphans(now)
        if self.closing:
            self._end_in_order()

    def is_done(self) -> bool:
        """Return whether the input is closed and nothing runs."""
        return self.closing and not self.running and not self.left_behind

    def _end_in_order(self) -> None:
        """Let the agents finish, and once there are none, end the services."""
        now = time.monotonic()
        agents = [process for process in self.running.values() if not process.is_service]
        for process in agents or list(self.running.values()):
            if process.kill_at is not None or process.is_leaving:
                continue
            deadline = now + process.spec.get("grace", 2.0)
            if self.workers and process.pipes:
                self.workers.let_finish(process)
            elif process.is_service:
                self.end(process, "interrupted")
            elif process.deadline is None or process.deadline > deadline:
                # An agent that ends by itself in that time need not run again.
                process.is_leaving, process.deadline = True, deadline

    def end(self, process: Running, status: str) -> None:
        """Ask a process to end, and record the status that names the reason."""
        if process.kill_at is None:
            process.status = status
            process.kill_at = time.monotonic() + process.spec.get("grace", 2.0)
            send_signal(process.pid, signal.SIGTERM, os.killpg)

    def _end_leftovers(self, process: Running) -> int:
        """Ask the processes that an ended agent left behind to end; return their number."""
        grace = process.spec.get("grace", 2.0)
        # An agent that was ended has had its grace already.
        kill_at = time.monotonic() + (grace if process.status == "exited" else 0)
        strays = [
            pid
            for pid in children()
            if pid not in self.running and pid not in self.left_behind and process.owns(pid)
        ]
        # The group signal misses processes that moved to a session of their own; these are in
        # `strays`.
        self.left_behind.update(dict.fromkeys(strays, kill_at))
        number = signal.SIGTERM if process.status == "exited" else signal.SIGKILL
        send_signal(process.pid, number, os.killpg)
        for pid in strays:
            send_signal(pid, number)
        return len(strays)

    def _find_orphans(self, now: float) -> None:
        """Find processes whose parent has ended, in any session, and end them."""
        for pid in children():
            is_known = pid in self.running or pid in self.left_behind
            # If its agent still runs, the agent detached it, and it ends with its agent.
            if not is_known and not any(process.owns(pid) for process in self.running.values()):
                self.left_behind[pid] = now + 2.0
                send_signal(pid, signal.SIGTERM)

    def report_end(self, result: dict[str, Any]) -> None:
        """Write a result to the journal, and then to the runner."""
        if not result.get("service"):
            self._write({"event": "ended", **result})
        with suppress(BrokenPipeError):  # the runner was killed; the journal has it
            os.write(1, json.dumps(result).encode() + b"\n")

    def note_started(self, spec: dict[str, Any], now_ns: int) -> None:
        """Write to the journal that an attempt starts."""
        line = {"rollout_id": spec["id"], "time": now_ns, "about": spec.get("about")}
        self._write({"event": "started", **line})

    def _write(self, line: dict[str, Any]) -> None:
        if self.journal is not None:
            unwritten = json.dumps(line).encode() + b"\n"
            while unwritten:
                unwritten = unwritten[os.write(self.journal, unwritten) :]


def _has_too_much_output(spec: dict[str, Any]) -> bool:
    limit, files = spec.get("max_output"), (spec["stdout"], spec["stderr"])
    return limit is not None and any(os.stat(file).st_size > limit for file in files)  # noqa: PTH116 - `pathlib` is not imported
