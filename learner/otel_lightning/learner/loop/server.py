"""A model server as a child process: start it, wait until it is ready, end it with its children."""

import json
import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from otel_lightning.collector.files.reason import reason
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.launcher.journal import FOLDER_VARIABLE, end_leftovers
from otel_lightning.learner.rollout_runner.models import is_ready

GRACE_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL."""
LAST_CHARACTERS = 500
"""Number of characters at the end of the server's log that an error shows."""


class ModelServer:
    """The command that serves a model, restarted for each other model."""

    def __init__(self, command: str, ready: str, seconds: float, folder: Path) -> None:
        """Take the command; nothing is started yet.

        Args:
            command: Command line; `{model}` is replaced by the model's folder.
            ready: URL that answers with 200 once the model is served.
            seconds: How long to wait for that.
            folder: Folder for the log and the process id.
        """
        self._command, self._ready, self._seconds = command, ready, seconds
        self._log, self._pid = folder / "server.log", folder / "server.json"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._model: Path | None = None
        _end_leftover(self._pid)
        # A loop that was killed before it wrote the server's process id left the server too.
        end_leftovers(folder)

    def serve(self, model: Path) -> None:
        """Serve a model; a server of another model is ended first.

        Raises:
            DataError: If the server cannot be started, ends, or is not ready in time.
        """
        if self._model == model and self._process is not None and self._process.poll() is None:
            return
        self.stop()
        # If another server has the port, it would seem ready at once, and the loop would measure
        # its model instead of this one.
        if is_ready(self._ready):
            raise DataError(
                f"'{self._ready}' answers already, so another server has its port. End it first."
            )
        words = [word.replace("{model}", str(model)) for word in shlex.split(self._command)]
        with self._log.open("ab") as log:
            self._process = self._started(words, log)
        self._pid.write_text(
            # A process id may belong to another process later; with the time of its start it is
            # unique.
            json.dumps({"pid": self._process.pid, "began": _began(self._process.pid)})
        )
        deadline = time.monotonic() + self._seconds
        while not is_ready(self._ready):
            if self._process.poll() is not None:
                code = self._process.returncode
                raise DataError(f"The model server ended with code {code}: {self._end_of_log()}")
            if time.monotonic() > deadline:
                self.stop()
                raise DataError(
                    f"The model server was not ready at '{self._ready}' after {self._seconds:g} s: "
                    f"{self._end_of_log()}"
                )
            time.sleep(0.1)
        self._model = model

    def stop(self) -> None:
        """End the server and all processes that it started."""
        if self._process is not None:
            _end_group(self._process.pid)
            self._process.wait()
        self._process, self._model = None, None
        self._pid.unlink(missing_ok=True)

    def _started(self, words: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # By this variable `end_leftovers` finds the server if this process is killed.
                env={**os.environ, FOLDER_VARIABLE: str(self._folder.resolve())},
                start_new_session=True,
            )
        except OSError as error:
            raise DataError(
                f"The model server '{words[0]}' cannot be started: {reason(error)}."
            ) from error

    def _end_of_log(self) -> str:
        """Return the end of the server's log, for an error message."""
        text = self._log.read_text(errors="replace").strip()[-LAST_CHARACTERS:]
        return f"'{text}' (more in {self._log})" if text else f"it wrote nothing to {self._log}"


def _end_leftover(file: Path) -> None:
    """End the server of a loop that was killed, if it still runs."""
    with suppress(OSError, ValueError, KeyError):
        server = json.loads(file.read_text())
        if _began(server["pid"]) == server["began"]:
            _end_group(server["pid"])
    file.unlink(missing_ok=True)


def _began(pid: int) -> str | None:
    """Return the start time of a process in clock ticks, or None if it has ended.

    It tells a process from a later one that got the same process id.
    """
    with suppress(OSError, IndexError):
        # Field 22 of the file, the start time in clock ticks. The name in parentheses may hold
        # spaces, so fields are counted from behind it: index 0 is field 3.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def _end_group(pid: int) -> None:
    """End all processes of a group: SIGTERM, and SIGKILL after `GRACE_SECONDS`."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while _lives(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        # Children may have ignored SIGTERM, so it is always sent. If the group is gone, it raises
        # ProcessLookupError.
        os.killpg(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    """Return whether a process of the group still runs; a zombie does not."""
    with suppress(ChildProcessError):
        # Leaves the zombie for `wait`, which reads its exit code.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    state = ""
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"
