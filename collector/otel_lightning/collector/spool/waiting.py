"""The requests that wait to be written to the spool, and their answers."""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import NamedTuple

from otel_lightning.collector.otlp.signals import Signal


class WaitingRequest(NamedTuple):
    """A request in the queue of the spool; `done` is resolved once it is durable."""

    signal: Signal
    body: bytes
    rows: int
    done: Future[None]


def acknowledge(requests: Iterable[WaitingRequest]) -> None:
    """Answer the senders that their requests are durable."""
    for one in requests:
        if one.done.set_running_or_notify_cancel():  # False if the sender disconnected
            one.done.set_result(None)


def refuse(requests: Iterable[WaitingRequest], error: Exception) -> None:
    """Tell the senders that their requests were not written."""
    for one in requests:
        if one.done.set_running_or_notify_cancel():
            one.done.set_exception(error)
