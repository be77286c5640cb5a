"""The log of `lightning-ingest serve`: a line each on standard error, with time and level."""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Literal, get_args

Format = Literal["text", "json"]
FORMATS = get_args(Format)
OURS = "otel_lightning"


class TextLines(logging.Formatter):
    """`2026-11-22T07:08:09.123Z WARNING otel_lightning.collector.alarms: the message`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s")
        self.datefmt = "%Y-%m-%dT%H:%M:%S"
        self.converter = time.gmtime


class JsonLines(TextLines):
    """One JSON object a line: `time`, `level`, `logger`, `message`; `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
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


def log_to_stderr(form: Format) -> None:
    """Write our records from INFO on, and those of libraries from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(OURS).setLevel(logging.INFO)


def say_with(form: Format, echo: Callable[[str], None]) -> Callable[[str], None]:
    """Return how to tell the user that it is ready and that it stopped.

    As text these lines go to standard output, as they are. As JSON they are records of the log.
    """
    return logging.getLogger(f"{OURS}.collector.serve").info if form == "json" else echo
