"""Health probes `/healthz` (liveness) and `/readyz` (readiness), which need no token.

If a thread dies, the process ends, so a process that answers is alive. It is ready while it
accepts new requests. Anybody may ask, so of the reason of an alarm the answer has only the words in
`PUBLIC`: no file name, no address, and nothing of what was stored.
"""

import errno
import os
import re
from http import HTTPStatus
from typing import NamedTuple

from otel_lightning.collector.alarms import (
    CHECKPOINTING,
    KINDS,
    LAGGING,
    RECEIVING,
    RESTARTING,
    RETRYING,
    Alarm,
)
from otel_lightning.collector.receive.accept import Receiver

ALIVE, READY = "/healthz", "/readyz"
PATHS = (ALIVE, READY)
READING_IDS = "the ids of stored rows are read, as after a crash: what comes is stored later\n"
ERRORS = (
    "Binder|Catalog|Constraint|Conversion|Dependency|FATAL|INTERNAL|Invalid Input|IO|"
    "Not implemented|Out of Memory|Out of Range|Parser|Serialization|TransactionContext"
)
"""Kinds of DuckDB's errors."""
WITHOUT_NAMES = frozenset({LAGGING, RESTARTING, RETRYING, CHECKPOINTING})
"""Alarms whose reasons are sentences of ours, with numbers only."""
PUBLIC = re.compile(
    "|".join(
        (
            *(re.escape(os.strerror(code)) for code in errno.errorcode),
            rf"\b(?:{ERRORS}) Error\b",
            r"\bhas not ended a (?:read|write) for more than \d+ seconds\b",
            r"\bwas deleted or replaced\b",
            r"\bwas mounted again\b",
            r"\bhas to be (?:re)?started(?: again)?\b",
            r"\bended with status -?\d+(?:: it was killed, perhaps because memory ran out)?",
        )
    )
)
"""Parts of a reason that an answer may have: errors of the system, kinds of DuckDB's, and ours."""


class Health(NamedTuple):
    """The answer to a probe, in plain text."""

    status: HTTPStatus
    text: str


def health(receiver: Receiver, path: str) -> Health:
    """Answer a request for one of the `PATHS`."""
    if path == ALIVE:
        return Health(HTTPStatus.OK, "alive\n")
    reason = receiver.spool.refusal()
    if receiver.alarms.refusal() or receiver.alarms.is_raised(RECEIVING):
        reason = " ".join(map(_public_line, receiver.alarms.raised()))
    if reason:
        return Health(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n")
    # Requests are taken and are safe on the spool, so the senders need not wait.
    return Health(HTTPStatus.OK, f"ready\n{READING_IDS if receiver.ids_to_read() else ''}")


def _public_line(alarm: Alarm) -> str:
    """Return an alarm in one line that anybody may read."""
    if alarm.name in WITHOUT_NAMES:
        reason = alarm.reason
    else:
        reason = ", ".join(dict.fromkeys(PUBLIC.findall(alarm.reason)))
    return f"{KINDS[alarm.name]} ({reason or 'see the log, or lightning-ingest check'})"
