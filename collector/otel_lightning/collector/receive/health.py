"""Health probes `/healthz` (liveness) and `/readyz` (readiness), which need no token.

If a thread dies, the process ends, so a process that answers is alive. It is ready while it
accepts new requests. Because anybody may ask, the answers contain no file name and no address.
"""

from http import HTTPStatus
from typing import NamedTuple

from otel_lightning.collector.alarms import KINDS, RECEIVING
from otel_lightning.collector.receive.accept import Receiver

ALIVE, READY = "/healthz", "/readyz"
PATHS = (ALIVE, READY)
READING_IDS = "the ids of stored rows are read, as after a crash: what comes is stored later\n"


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
        # A reason may name files, so only the kinds of alarm are told.
        reason = " ".join(KINDS[alarm.name] for alarm in receiver.alarms.raised())
    if reason:
        return Health(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n")
    # Requests are taken and are safe on the spool, so the senders need not wait.
    return Health(HTTPStatus.OK, f"ready\n{READING_IDS if receiver.ids_to_read() else ''}")
