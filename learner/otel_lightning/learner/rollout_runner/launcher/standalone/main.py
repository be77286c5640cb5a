"""Serve the commands of the runner until its end.

Commands come from standard input, and results go to standard output, one JSON object a line. Each
result is appended to the journal first: if the runner is killed, no end is lost. When standard
input closes, because the runner asked or was killed, all processes are ended, and then this one.
An agent may then end by itself, and a worker may finish its task, within the grace period.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from . import process_tree
from .launcher import Launcher

TYPE_CHECKING = False  # type checkers know the name; `typing` itself is not imported
if TYPE_CHECKING:
    from typing import Any

POLL_SECONDS = 0.25
"""Interval of the checks for timeouts, too much output and processes left behind."""


def main() -> None:
    """Serve commands until standard input closes and no process is left.

    The first argument, if there is one, is the path of the journal.
    """
    # Appending, so that a line of the runner is never overwritten.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    launcher = Launcher(os.open(sys.argv[1], flags, 0o666) if sys.argv[1:] else None)
    _keep_files_from_agents()
    process_tree.adopt_orphans()
    signals = _wake_up_on_signals(launcher)
    launcher.poll.register(0, select.POLLIN)
    launcher.poll.register(signals, select.POLLIN)
    lines, checked_at = Lines(), 0.0
    while not launcher.is_done():
        busy = launcher.running or launcher.left_behind or launcher.closing
        # While something runs, its timeouts and output are checked at an interval; otherwise sleep
        # until a command or a signal comes.
        events = launcher.poll.poll(POLL_SECONDS * 1000 if busy else None)
        ready = {number for number, _ in events}
        if signals in ready:
            os.read(signals, 4096)
        if launcher.workers:
            launcher.workers.exchange(ready)
        launcher.reap()
        if 0 in ready:
            for command in lines.read():
                _execute(launcher, command)
            if lines.ended:
                launcher.poll.unregister(0)
                launcher.closing = True
        # Each check reads /proc; for every agent that starts or ends that would cost too much.
        if launcher.closing or time.monotonic() - checked_at >= POLL_SECONDS:
            launcher.enforce_limits()
            checked_at = time.monotonic()


class Lines:
    """Whole lines of standard input, which does not block."""

    def __init__(self) -> None:
        self.partial_line = b""
        self.ended = False

    def read(self) -> list[dict[str, Any]]:
        """Return the objects whose lines have arrived."""
        data = os.read(0, 1 << 20)
        self.ended = not data
        # A read may end within a line: its part waits for the next read.
        *whole, self.partial_line = (self.partial_line + data).split(b"\n")
        return [json.loads(line) for line in whole]


def _execute(launcher: Launcher, command: dict[str, Any]) -> None:
    if launcher.closing:
        return
    if "start" in command:
        launcher.start(command["start"])
    elif "ask" in command:
        launcher.ask_worker(command["ask"])
    elif "dismiss" in command and launcher.workers:
        launcher.workers.dismiss()
    elif "stop" in command:
        launcher.stop(command["stop"])


def _wake_up_on_signals(launcher: Launcher) -> int:
    """Return a pipe into which each signal writes a byte, so that `poll` returns at once."""
    reader, writer = os.pipe()
    for end in (0, reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def close(*_: object) -> None:
        launcher.closing = True

    # A handler that does nothing: without one the signal is ignored, and no byte is written.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, close)
    return reader


def _keep_files_from_agents() -> None:
    """Close what the runner left open, such as the journal's lock, in each agent."""
    for text in os.listdir("/dev/fd"):  # noqa: PTH208 - `pathlib` is not imported
        try:
            os.set_inheritable(int(text), int(text) <= 2)  # noqa: PLR2004 - standard streams
        except OSError:  # the folder's own descriptor, which is closed by now
            continue
