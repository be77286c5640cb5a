"""Start processes through the launcher, and read how they ended."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.launcher.output_files import end_on_one_line

LAUNCHER = "import sys; sys.path.append(sys.argv.pop(1)); from standalone.main import main; main()"
"""The launcher's program; its first argument is the folder of the package `standalone`."""
POLL_SECONDS = 0.05
INHERITED = 3
"""File descriptor of the listening socket in a service that inherits one."""
WORKERS = "workers"
"""Name of the launcher's result that reports that no worker is left."""
END_SECONDS = 60.0
"""Longest wait for the launcher to end all processes; it kills each after its grace."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One process to start."""

    name: str
    """The rollout's id, or the name of a service."""
    command: Sequence[str]
    folder: Path
    """Folder of its output, in the files `<name>.out` and `<name>.err`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: Path | None = None
    timeout: float | None = None
    grace: float = 2.0
    """Seconds between SIGTERM and SIGKILL."""
    max_output: int | None = None
    """Bytes of one output file above which the process is ended."""
    about: Mapping[str, Any] | None = None
    """Run, task, sample and arm of an attempt, for the journal."""
    is_service: bool = False
    """Whether agents need it: then it ends after them, and the journal does not name it."""
    listener: int | None = None
    """File descriptor of a listening socket, in the launcher, which a service inherits as
    `INHERITED` and the launcher closes."""

    @property
    def stdout(self) -> Path:
        """File of its standard output."""
        return self.folder / f"{self.name}.out"

    @property
    def stderr(self) -> Path:
        """File of its standard error."""
        return self.folder / f"{self.name}.err"

    def message(self) -> dict[str, Any]:
        """Return the fields that the launcher needs, as JSON."""
        return {
            "id": self.name,
            "command": list(self.command),
            "environment": dict(self.environment),
            "stdin": None if self.stdin is None else str(self.stdin),
            "stdout": str(self.stdout),
            "stderr": str(self.stderr),
            "timeout": self.timeout,
            "grace": self.grace,
            "max_output": self.max_output,
            "about": self.about,
            "service": self.is_service,
            "listener": self.listener,
        }


INTERRUPTED = "interrupted"
"""Status of an attempt that the runner's end, or Ctrl-C, cut off."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one attempt ended, as the journal has it."""

    rollout_id: str
    status: str
    """`exited`, `timeout`, `output` (too much of it), `interrupted` or `not_started`."""
    started: int
    ended: int
    """Unix nanoseconds."""
    exit_code: int | None = None
    signal: int | None = None
    left: int = 0
    """Number of processes that it left behind, which were killed."""
    cpu_seconds: float = 0.0
    reason: str | None = None
    service: bool = False


class LauncherDiedError(RuntimeError):
    """The launcher ended by itself."""


class Processes:
    """The launcher process, and its reports of started and ended agents."""

    def __init__(self, journal: Path | None = None, held: Sequence[int] = ()) -> None:
        """Start the launcher.

        Args:
            journal: File to append each start and end to.
            held: File descriptors that stay open while the launcher lives, such as a lock.
        """
        # Isolated and without site-packages: no .pth file or PYTHONPATH, such as
        # auto-instrumentation, can load anything into the launcher.
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(Path(__file__).parent)]
        self._process = subprocess.Popen(
            command + ([str(journal)] if journal else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the runner only, which then asks the launcher
            pass_fds=tuple(held),
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(_pipe(self._process.stdout), selectors.EVENT_READ)
        self._partial_line = b""
        self._services: dict[str, Ended] = {}

    def start(self, spec: Spec) -> None:
        """Start a process; `ended` yields how it ended."""
        self._send({"start": spec.message()})

    def stop(self, name: str | None = None) -> None:
        """Ask a process to end, or all agents: SIGTERM, and SIGKILL after its grace."""
        self._send({"stop": {"id": name}})

    def ask(self, spec: Spec, task: Mapping[str, Any]) -> None:
        """Give a worker a task; it is started if it does not run.

        Args:
            spec: The worker.
            task: The attempt: its id, `line`, `timeout`, `stdout`, `max_output` and `about`.
        """
        self._send({"ask": {**task, "worker": spec.message()}})

    def dismiss_workers(self, seconds: float) -> None:
        """Let all workers end after the task that they have, and wait until they have ended."""
        self._services.pop(WORKERS, None)
        self._send({"dismiss": {}})
        self._await_service(WORKERS, seconds)

    def end_service(self, name: str, seconds: float) -> None:
        """Ask a service to end, and wait until it has, or for at most this long."""
        self.stop(name)
        self._await_service(name, seconds)

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield how processes ended, waiting at most this long for the first.

        Raises:
            LauncherDiedError: If the launcher was killed.
        """
        if not self._selector.select(seconds):
            return
        # `os.read` returns what is there; the pipe's own `read` would wait for a whole buffer.
        data = os.read(_pipe(self._process.stdout).fileno(), 1 << 20)
        if not data:
            raise LauncherDiedError(f"the launcher ended, code {self._process.wait(5)}")
        *whole, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in whole:
            end = Ended(**json.loads(line))
            if end.service:
                self._services[end.rollout_id] = end
            else:
                yield end

    def service_ended(self, name: str) -> Ended | None:
        """Return how a service ended, or None while it runs."""
        return self._services.get(name)

    def close(self) -> None:
        """End all processes, agents before services, and wait until none is left."""
        with suppress(OSError, LauncherDiedError):
            self.stop()  # at the mere end of its input, the launcher would let agents finish
        with suppress(OSError):
            # The launcher takes the end of its input as the request to end everything.
            _pipe(self._process.stdin).close()
        deadline = time.monotonic() + END_SECONDS
        # Read on: the launcher would wait for ever at a full pipe.
        with suppress(LauncherDiedError, subprocess.TimeoutExpired):
            while time.monotonic() < deadline:
                for _ in self.ended(0.2):
                    pass
        self._selector.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        _pipe(self._process.stdout).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_service(self, name: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.service_ended(name) and time.monotonic() < deadline:
            for _ in self.ended(POLL_SECONDS):  # those of agents are in the journal
                pass

    def _send(self, command: Mapping[str, Any]) -> None:
        pipe = _pipe(self._process.stdin)
        try:
            pipe.write(json.dumps(command).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError as error:
            raise LauncherDiedError("the launcher ended") from error


def wait_until(
    processes: Processes, spec: Spec, ready: Callable[[], bool], seconds: float, service: str
) -> None:
    """Wait until a service that was started is ready.

    Raises:
        DataError: If it ends before, or is not ready in time; the message has its last output.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        for _ in processes.ended(POLL_SECONDS):
            pass
        late = time.monotonic() > deadline
        if late or processes.service_ended(spec.name):
            problem = f"is not ready after {seconds:g} s" if late else "ended by itself"
            last_output = end_on_one_line(spec.stderr) or end_on_one_line(spec.stdout)
            raise DataError(f"{service} {problem}. Its last output: {last_output or 'none'}")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - Popen was asked for it
    return pipe
