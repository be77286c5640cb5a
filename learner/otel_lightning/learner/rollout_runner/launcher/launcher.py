"""A small process that starts agents, ends them, and writes down how each ended.

It is run as a script and imports the standard library only, so that starting an agent copies
nothing of the runner, which may have DuckDB and polars loaded. It reads commands from standard
input and writes results to standard output, one JSON object a line. Each result is appended to the
journal first: if the runner is killed, no end is forgotten. When standard input closes, because
the runner asked or was killed, it ends all processes and then itself.

A worker runs one attempt after the other. This process gives it the tasks and reads its answers,
so that no answer is forgotten either. When the input closes, an agent may end by itself, and a
worker may finish its task, within the grace period.

It imports little, because each run waits for its start: without `dataclasses`, `typing` and
`subprocess` it starts in half of the time. It uses `os` instead of the slower `pathlib`, and
`posix_spawn` instead of `subprocess`, which took a fifth of the CPU time for each agent.

Each process gets a session of its own. On Linux this process adopts what an agent leaves behind
(`PR_SET_CHILD_SUBREAPER`), so that a grandchild is found and killed even in another session.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False  # type checkers know the name; `typing` itself is not imported
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from otel_lightning.learner.rollout_runner.launcher.launcher_workers import Pipes, Workers

# Value of the constant in Linux's <linux/prctl.h>; Python has no name for it.
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.25
"""Interval of the checks for timeouts, too much output and processes left behind."""
ROLLOUT, WORKER = "LIGHTNING_ROLLOUT_ID", "LIGHTNING_RUN_WORKER"
ENVIRONMENT = dict(os.environb)
"""As bytes: to decode and encode it for each agent would cost as much as to start the agent."""


class Running:
    """One process that has started and not ended."""

    def __init__(
        self, spec: dict[str, Any], pid: int, started_ns: int, deadline: float | None
    ) -> None:
        self.spec, self.pid, self.started_ns, self.deadline = spec, pid, started_ns, deadline
        self.status = "exited"
        self.kill_at: float | None = None
        self.pipes: Pipes | None = None
        """Those of a worker."""
        self.asked: dict[str, Any] | None = None
        """The attempt that a worker has been asked for; `started_ns` and `deadline` are its own."""
        self.is_leaving = False
        """Whether it may end by itself, and is interrupted at its deadline."""

    @property
    def mark(self) -> bytes:
        """The variable in the environment of what it starts."""
        name = ROLLOUT if self.pipes is None else WORKER
        return f"{name}={self.spec['id']}".encode()

    @property
    def is_service(self) -> bool:
        """Whether agents need it, so that it ends after them."""
        return bool(self.spec.get("service"))


class Launcher:
    """Starts processes and reports their ends."""

    def __init__(self, journal: int | None) -> None:
        """Begin without any process.

        Args:
            journal: File descriptor that appends, so that a line of the runner is never written
                over.
        """
        self.journal = journal
        self.running: dict[int, Running] = {}
        self.left_behind: dict[int, float] = {}
        """Processes whose agent has ended, by id: the time at which each is killed."""
        self.closing = False
        self.poll = select.poll()
        self.workers: Workers | None = None

    def start(self, spec: dict[str, Any]) -> None:
        """Start one process, and say so in the journal before it can act."""
        now = time.time_ns()
        if not spec.get("service"):
            # Before the process exists: an agent that runs is then always in the journal, even if
            # this process is killed in the next moment.
            self.note_started(spec, now)
        try:
            pid = _started(spec)
        except (OSError, ValueError) as error:
            self.report_end(ended(spec, "not_started", now, reason=str(error)))
            return
        limit = spec.get("timeout")
        deadline = None if limit is None else time.monotonic() + limit
        self.running[pid] = Running(spec, pid, now, deadline)

    def start_worker(self, spec: dict[str, Any], pipes: Pipes) -> Running:
        """Start a worker with these pipes.

        Raises:
            OSError: If it cannot be started.
        """
        pid = _started(spec, pipes.theirs)
        process = self.running[pid] = Running(spec, pid, 0, None)
        process.pipes = pipes
        return process

    def stop(self, spec: dict[str, Any]) -> None:
        """Ask one process to end, or all agents if none is named."""
        name = spec["id"]
        for process in list(self.running.values()):
            if process.spec["id"] == name or (name is None and not process.is_service):
                self.end(process, "interrupted")

    def reap(self) -> None:
        """Report every process that has ended."""
        while pid := _next_ended():
            process = self.running.get(pid)
            # Until it is waited for, its id and its group cannot be another's.
            behind = self._end_what_it_left(process) if process else 0
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
                ended(
                    process.spec,
                    process.status,
                    process.started_ns,
                    exit_code=code if code >= 0 else None,
                    signal=-code if code < 0 else None,
                    left=behind,
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
                    _signal(pid, signal.SIGKILL, os.killpg)
            elif process.deadline is not None and now >= process.deadline:
                self.end(process, "interrupted" if process.is_leaving else "timeout")
            elif _writes_too_much(process.spec):
                self.end(process, "output")
        for pid, kill_at in self.left_behind.items():
            if now >= kill_at:
                _signal(pid, signal.SIGKILL)
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
            at = now + process.spec.get("grace", 2.0)
            if self.workers and process.pipes:
                self.workers.let_finish(process)
            elif process.is_service:
                self.end(process, "interrupted")
            elif process.deadline is None or process.deadline > at:
                # What ends by itself in that time need not run again.
                process.is_leaving, process.deadline = True, at

    def end(self, process: Running, status: str) -> None:
        """Ask a process to end, for the reason that its status tells."""
        if process.kill_at is None:
            process.status = status
            process.kill_at = time.monotonic() + process.spec.get("grace", 2.0)
            _signal(process.pid, signal.SIGTERM, os.killpg)

    def _end_what_it_left(self, process: Running) -> int:
        """Ask the processes of an ended agent to end; return their number."""
        grace = process.spec.get("grace", 2.0)
        at = time.monotonic() + (grace if process.status == "exited" else 0)  # else it had its time
        strays = [
            pid
            for pid in _children()
            if pid not in self.running and pid not in self.left_behind and _is_of(pid, process)
        ]
        # The group signal misses processes that moved to a session of their own; these are in
        # `strays`.
        self.left_behind.update(dict.fromkeys(strays, at))
        number = signal.SIGTERM if process.status == "exited" else signal.SIGKILL
        _signal(process.pid, number, os.killpg)
        for pid in strays:
            _signal(pid, number)
        return len(strays)

    def _find_orphans(self, now: float) -> None:
        """Find processes whose parent has ended, in any session, and end them."""
        for pid in _children():
            is_known = pid in self.running or pid in self.left_behind
            # Its agent may still run: then the agent let it go, and it ends with its agent.
            if not is_known and not any(_is_of(pid, process) for process in self.running.values()):
                self.left_behind[pid] = now + 2.0
                _signal(pid, signal.SIGTERM)

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
            rest = json.dumps(line).encode() + b"\n"
            while rest:
                rest = rest[os.write(self.journal, rest) :]


def main() -> None:
    """Serve commands until standard input closes and no process is left."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    launcher = Launcher(os.open(sys.argv[1], flags, 0o666) if sys.argv[1:] else None)
    _keep_files_from_agents()
    _adopt_orphans()
    # A signal writes a byte into this pipe, so that `poll` returns at once when a child ends.
    woken, wake = os.pipe()
    for end in (0, woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    # A handler that does nothing: without one the signal is ignored, and no byte is written.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: _close(launcher))
    poll = launcher.poll
    poll.register(0, select.POLLIN)
    poll.register(woken, select.POLLIN)
    lines, looked = Lines(), 0.0
    while not launcher.is_done():
        busy = launcher.running or launcher.left_behind or launcher.closing
        # While something runs, its timeouts and output are checked at an interval; else sleep until
        # a command or a signal comes.
        ready = {number for number, _ in poll.poll(POLL_SECONDS * 1000 if busy else None)}
        if woken in ready:
            os.read(woken, 4096)
        if launcher.workers:
            launcher.workers.exchange(ready)
        launcher.reap()
        if 0 in ready:
            for command in lines.read():
                _obey(launcher, command)
            if lines.ended:
                poll.unregister(0)
                _close(launcher)
        # Each look reads /proc; for every agent that starts or ends that would cost too much.
        if launcher.closing or time.monotonic() - looked >= POLL_SECONDS:
            launcher.enforce_limits()
            looked = time.monotonic()


class Lines:
    """Whole lines of standard input, which does not block."""

    def __init__(self) -> None:
        self.rest = b""
        self.ended = False

    def read(self) -> list[dict[str, Any]]:
        """Return the objects whose lines have arrived."""
        data = os.read(0, 1 << 20)
        self.ended = not data
        # A read may end within a line: the rest waits for the next read.
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in whole]


def _obey(launcher: Launcher, command: dict[str, Any]) -> None:
    if launcher.closing:
        return
    if "start" in command:
        launcher.start(command["start"])
    elif "ask" in command:
        launcher.workers = launcher.workers or _beside("launcher_workers").Workers(launcher, ended)
        launcher.workers.ask(command["ask"])
    elif "dismiss" in command and launcher.workers:
        launcher.workers.dismiss()
    elif "stop" in command:
        launcher.stop(command["stop"])


def _close(launcher: Launcher) -> None:
    launcher.closing = True


def _started(spec: dict[str, Any], pipes: tuple[int, int] | None = None) -> int:
    """Start the process of a spec in a session of its own; return its id.

    Args:
        spec: What to start.
        pipes: Standard input and output of a worker, instead of the spec's files. Its standard
            error is appended to the file.
    """
    given = {os.fsencode(name): os.fsencode(text) for name, text in spec["environment"].items()}
    environment = {**ENVIRONMENT, **given}
    output = os.O_WRONLY | os.O_CREAT
    files = [(2, spec["stderr"], output | (os.O_APPEND if pipes else os.O_TRUNC))]
    if not pipes:
        files.append((0, spec["stdin"] or os.devnull, os.O_RDONLY))
        files.append((1, spec["stdout"], output | os.O_TRUNC))
    if not hasattr(os, "POSIX_SPAWN_OPEN") or not sys.platform.startswith("linux"):
        other = _beside("launcher_elsewhere")
        return other.started(spec["command"], environment, files, pipes)  # type: ignore[no-any-return]
    listens = spec.get("listens")
    started = os.posix_spawn(
        _program(spec["command"][0], environment.get(b"PATH", os.fsencode(os.defpath))),
        spec["command"],
        environment,
        file_actions=[
            *((os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(pipes or ())),
            *([(os.POSIX_SPAWN_DUP2, listens, 3)] if listens else ()),
            *((os.POSIX_SPAWN_OPEN, number, path, flags, 0o666) for number, path, flags in files),
        ],
        setsid=True,
        # Python ignores these signals, and an agent expects them as any program does.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )
    if listens:  # so that nobody can connect once the service has ended
        os.close(listens)
    return started


def _beside(name: str) -> Any:
    """Import a file beside this one; this process has no folder to import from."""
    if name not in sys.modules:
        from importlib.machinery import SourceFileLoader

        place = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")  # noqa: PTH100, PTH118, PTH120
        sys.modules[name] = SourceFileLoader(name, place).load_module()
    return sys.modules[name]


_FOUND: dict[tuple[str, bytes], str] = {}
"""Path of each program that was looked for, by its name and PATH."""


def _program(name: str, path: bytes) -> str:
    """Return the path of a program, as a shell finds it.

    Raises:
        FileNotFoundError: If no folder of PATH has it.
    """
    if "/" in name:
        return name
    if (name, path) not in _FOUND:
        folders = os.fsdecode(path).split(os.pathsep)
        places = [os.path.join(folder or ".", name) for folder in folders]  # noqa: PTH118
        runs = [p for p in places if os.access(p, os.X_OK) and not os.path.isdir(p)]  # noqa: PTH112
        if not runs:
            raise FileNotFoundError(2, "No such file or directory", name)
        _FOUND[name, path] = runs[0]
    return _FOUND[name, path]


def _keep_files_from_agents() -> None:
    """Close what the runner left open, such as the journal's lock, in each agent."""
    for text in os.listdir("/dev/fd"):  # noqa: PTH208 - see above
        # The folder's own descriptor is closed by now.
        with suppress(OSError):
            os.set_inheritable(int(text), int(text) <= 2)  # noqa: PLR2004 - standard streams


def ended(spec: dict[str, Any], status: str, started_ns: int, **more: Any) -> dict[str, Any]:
    """Return how a process or an attempt ended."""
    known = {"exit_code": None, "signal": None, "left": 0, "cpu_seconds": 0.0, "reason": None}
    times = {"started": started_ns, "ended": time.time_ns()}
    service = {"service": True} if spec.get("service") else {}
    return {"rollout_id": spec["id"], "status": status, **times, **known, **more, **service}


def _next_ended() -> int:
    """Return the id of a child that has ended and was not waited for, or 0."""
    try:
        # WNOWAIT leaves it a zombie, so that its process id is not given to another process yet.
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return found.si_pid if found else 0


def _writes_too_much(spec: dict[str, Any]) -> bool:
    most, files = spec.get("max_output"), (spec["stdout"], spec["stderr"])
    return most is not None and any(os.stat(file).st_size > most for file in files)  # noqa: PTH116 - see above


def _children() -> list[int]:
    """Return the ids of this process's children; none where the system does not list them."""
    try:
        listed = _bytes_of(f"/proc/self/task/{os.getpid()}/children")
    except OSError:
        return []
    # Without those that have ended: they are zombies, or gone.
    return [pid for pid in map(int, listed.split()) if _stat(pid)[:1] not in ([], ["Z"])]


def _bytes_of(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on: state, parent, group, session, …."""
    try:
        text = _bytes_of(f"/proc/{pid}/stat").decode("utf-8", "replace")
    except OSError:
        return []
    # The second field, the program's name in parentheses, may itself hold parentheses.
    return text.rpartition(")")[2].split()


def _is_of(pid: int, process: Running) -> bool:
    """Return whether a process comes from this agent: by its session, else by its variables."""
    fields = _stat(pid)
    if fields and int(fields[3]) == process.pid:
        return True
    try:
        variables = _bytes_of(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return False
    return process.mark in variables


def _signal(pid: int, number: int, send: Callable[[int, int], None] = os.kill) -> None:
    with suppress(ProcessLookupError, PermissionError):
        send(pid, number)


def _adopt_orphans() -> None:
    if not sys.platform.startswith("linux"):
        return
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main()
