"""The log of `lightning-ingest serve`: lines on standard error, with time and level."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TextIO, get_args

Format = Literal["text", "json"]
FORMATS = get_args(Format)
OURS = "otel_lightning"


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


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines to a stream. What it does not take, as on a full disk, must stop nothing."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name in logging
        """Leave out the line if the stream failed; Python keeps it to write it with the next."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


def log_to_stderr(form: Format) -> None:
    """Log our records from level INFO, and those of libraries from level WARNING."""
    handler = _Lines(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(OURS).setLevel(logging.INFO)
    threading.excepthook = _log_death


def _log_death(died: threading.ExceptHookArgs) -> None:
    """Log the error that ended a thread as a line with time and level, too."""
    name = died.thread.name if died.thread else "unknown"
    error = died.exc_value
    logging.getLogger(f"{OURS}.collector.serve").critical("Thread '%s' died", name, exc_info=error)


def say_with(form: Format, echo: Callable[[str], None]) -> Callable[[str], None]:
    """Return the function that reports the start and the stop to the user.

    With text logs it prints plain lines on standard output. With JSON logs it writes log records.
    """

    def say(line: str) -> None:
        with suppress(OSError):  # such as a pipe that nobody reads any more
            echo(line)

    return logging.getLogger(f"{OURS}.collector.serve").info if form == "json" else say
