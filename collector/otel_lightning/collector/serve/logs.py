"""The log of `lightning-ingest serve`: lines on standard error, with time and level.

Nothing waits for whoever reads the log: a pipe that nobody reads is full after 64 KiB. Some more
lines are kept until they can be written; the next ones are dropped, and their number is logged.
"""

import faulthandler
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal

Format = Literal["text", "json"]
OURS = "otel_lightning"
KEPT_BYTES = 64 * 1024
"""Size of the lines that are kept while nobody reads the log."""
SHORT_SECONDS, LONG_SECONDS = 0.05, 1.0
"""Longest wait until a line is written, and until all are at the end of the process."""
LOOK_SECONDS = 0.2


class TextLines(logging.Formatter):
    """Lines of text: `2026-11-22T07:08:09.123Z WARNING otel_lightning.collector.alarms: text`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s")
        self.datefmt = "%Y-%m-%dT%H:%M:%S"
        self.converter = time.gmtime


class JsonLines(TextLines):
    """JSON lines: objects with `time`, `level`, `logger`, `message`, for an error `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        seconds = self.formatTime(record, self.datefmt)
        line = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class Writer:
    """Writes lines to a file descriptor from a thread of its own, so that only this thread waits.

    Whoever gives it a line waits until it is written only if the last ones were written at once.
    """

    def __init__(self, descriptor: int, dropped_line: Callable[[int], str]) -> None:
        """Start the thread.

        Args:
            descriptor: Such as 2 for standard error.
            dropped_line: Returns the line that says how many lines were dropped.
        """
        self._descriptor, self._dropped_line = descriptor, dropped_line
        self._changed = threading.Condition()
        self._waiting = bytearray()
        self._unreported = 0
        self._is_stuck = False
        self._has_reader = True
        self._dropped = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def take(self, text: str) -> None:
        """Have a line written, or keep it until there is room for it, or drop it."""
        line = f"{text}\n".encode(errors="backslashreplace")
        with self._changed:
            # Also after one that was dropped, until their number is written in their place.
            if self._unreported or len(self._waiting) + len(line) > KEPT_BYTES:
                self._unreported += 1
                self._dropped += 1
                return
            self._waiting += line
            self._changed.notify_all()
            self._wait_until_written(SHORT_SECONDS)

    @property
    def dropped(self) -> int:
        """Number of lines that were dropped, or wait for a reader that has ended."""
        with self._changed:
            return self._dropped + (0 if self._has_reader else self._waiting.count(b"\n"))

    def flush(self) -> None:
        """Wait until all lines are written, unless nobody reads them."""
        with self._changed:
            self._wait_until_written(LONG_SECONDS)

    def _wait_until_written(self, seconds: float) -> None:
        is_written = self._is_stuck or self._changed.wait_for(lambda: not self._waiting, seconds)
        self._is_stuck = self._is_stuck or not is_written

    def _write(self) -> None:
        writable = select.poll()
        writable.register(self._descriptor, select.POLLOUT)
        while True:
            part = self._next_part()
            written = 0
            if writable.poll(LOOK_SECONDS * 1000):
                # Not more than a pipe or terminal that is ready takes without waiting.
                try:
                    written = os.write(self._descriptor, part)
                    self._has_reader = True
                except OSError as error:  # its reader has ended, or its disk is full
                    self._has_reader = not isinstance(error, BrokenPipeError)
                    time.sleep(LOOK_SECONDS)
            with self._changed:
                del self._waiting[:written]
                self._is_stuck = self._is_stuck and bool(self._waiting)
                self._changed.notify_all()

    def _next_part(self) -> bytes:
        """Wait for something to write, and return its beginning."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._unreported)
            if not self._waiting:
                self._waiting += f"{self._dropped_line(self._unreported)}\n".encode()
                self._unreported = 0
            return bytes(self._waiting[: select.PIPE_BUF])


class Lines(logging.Handler):
    """Gives the log's lines to a `Writer`."""

    def __init__(self, descriptor: int) -> None:
        """Write to a descriptor, such as 2 for standard error."""
        super().__init__()
        self.writer = Writer(descriptor, lambda lines: self.format(_dropped(lines)))

    def emit(self, record: logging.LogRecord) -> None:
        """Have one record written."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  whatever the record has; `handleError` prints it
            self.handleError(record)
        else:
            self.writer.take(line)

    def flush(self) -> None:
        """Wait until all lines are written, unless nobody reads them."""
        self.writer.flush()


def _dropped(lines: int) -> logging.LogRecord:
    message = "%d lines of this log were dropped here, because they could not be written."
    return logging.LogRecord(f"{OURS}.log", logging.WARNING, "", 0, message, (lines,), None)


def dropped_lines() -> int:
    """Return how many lines of the log were dropped since the start."""
    handlers = logging.getLogger().handlers
    return sum(one.writer.dropped for one in handlers if isinstance(one, Lines))


def log_to_stderr(form: Format) -> None:
    """Log our records from level INFO, and those of libraries from level WARNING."""
    # A test may have replaced the stream. One that is closed is the null device by now.
    is_own = sys.stderr is sys.__stderr__
    handler = Lines(2) if is_own else logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(OURS).setLevel(logging.INFO)
    threading.excepthook = _log_death
    if is_own:  # if a library ends the process by a signal: what each thread was doing
        faulthandler.enable(2)


def _log_death(died: threading.ExceptHookArgs) -> None:
    """Log the error that ended a thread as a line with time and level, too."""
    name = died.thread.name if died.thread else "unknown"
    error = died.exc_value
    logging.getLogger(f"{OURS}.collector.serve").critical("Thread '%s' died", name, exc_info=error)


def say_with(form: Format) -> Callable[[str], None]:
    """Return the function that reports the start and the stop to the user.

    With text logs it prints plain lines on standard output. With JSON logs it writes log records.
    """
    if form == "json":
        return logging.getLogger(f"{OURS}.collector.serve").info
    if sys.stdout is not sys.__stdout__:  # a test has replaced it
        return print
    return Writer(1, "{} lines were dropped here, because they could not be written.".format).take
