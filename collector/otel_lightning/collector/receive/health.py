"""`/healthz` and `/readyz`: for whoever starts, restarts and sends here, without a token.

A process whose threads died ends, so one that answers at all is alive. It is ready while it takes
new requests. The answers name no file and no address.
"""

from http import HTTPStatus
from typing import NamedTuple

from otel_lightning.collector.alarms import KINDS
from otel_lightning.collector.receive.accept import Receiver

ALIVE, READY = "/healthz", "/readyz"
PATHS = (ALIVE, READY)


class Health(NamedTuple):
    """An answer in plain text."""

    status: HTTPStatus
    text: str


def health(receiver: Receiver, path: str) -> Health:
    """Answer for one of the `PATHS`."""
    if path == ALIVE:
        return Health(HTTPStatus.OK, "alive\n")
    reason = receiver.spool.refusal()
    if receiver.alarms.refusal():
        reason = " ".join(KINDS[alarm.name] for alarm in receiver.alarms.raised())
    if reason:
        return Health(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n")
    return Health(HTTPStatus.OK, "ready\n")
