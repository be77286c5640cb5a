"""Check a request, append it to the spool and choose the answer; the same for HTTP and gRPC.

Source:
    OTLP specification 1.11: full success, partial success, failures, and retryable codes.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.otlp.json_encoding import Read, read_json
from otel_lightning.collector.otlp.repair import repair
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.receive.access import AccessGuard
from otel_lightning.collector.receive.feedback import read_feedback
from otel_lightning.collector.receive.metrics import Counts
from otel_lightning.collector.receive.refusals import RefusedError, in_one_line, unavailable
from otel_lightning.collector.spool.spool import Spool, SpoolError
from otel_lightning.instrumentation.attributes import REJECTED_RECORD

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024 * 1024
DURABLE_SECONDS = 30  # timeout of a disk write; after it the answer is "not stored"
BODY_SECONDS = 60  # timeout for a whole body; exporters stop waiting much earlier
PROTOBUF, JSON = "application/x-protobuf", "application/json"
REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
Response = Message | Mapping[str, Any]
"""Either an OTLP message, or for a path that accepts only JSON, the object to write as JSON."""
NO_TRACE, NO_SPAN = bytes(16), bytes(8)
BAD_IDS = (
    "trace_id must be 16 bytes and span_id 8 bytes, neither all zero; "
    "the reasons are in the table `rejected`"
)
BAD_LOGS = "a log record cannot be read; the reasons are in the table `rejected`"
LOGGED_ELSEWHERE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses of refusals whose reason is logged by its path, or as an alarm."""
BROKEN = {
    "http": "its body was no valid HTTP",
    "grpc": "gRPC refused it, as a message of more than twice --max-body",
}
"""Another reason why a request may have ended early, by transport."""
NO_METRICS = "metrics are not stored: traces and logs are"


@dataclass(frozen=True)
class Receiver:
    """The spool for requests, the access check, and the counters of the outcomes."""

    spool: Spool
    guard: AccessGuard
    gauges: Callable[[], Mapping[str, float]]
    max_body: int = MAX_BODY_BYTES
    counts: Counts = field(default_factory=Counts)
    alarms: Alarms = field(default_factory=Alarms)
    grpc_address: str | None = "port 4317"
    """Address for gRPC exporters, named in the answer to one that uses the HTTP port; None if there
    is none."""

    ids_to_read: Callable[[], int] = int
    """Returns the number of stored rows whose ids are still read before anything is stored."""

    def note_refused(self, transport: str, signal: str, refusal: RefusedError, client: str) -> None:
        """Count a request that was refused; log the first one of each status, with its sender.

        The sender's own log often has no more than the status, and is on another machine.
        """
        count = self.counts.refused(transport, signal, refusal.status)
        if count == 1 and refusal.status not in LOGGED_ELSEWHERE:
            logger.warning(
                "A request of %s was refused (%d); others like it are only counted: %s",
                client,
                refusal.status,
                in_one_line(str(refusal)),
            )

    def note_left(self, transport: str, signal: str, client: str) -> None:
        """Count a request that broke off; log the first one of each transport."""
        if self.counts.left(transport, signal) == 1:
            logger.warning(
                "A request of %s broke off before it was whole: its sender or the network ended it,"
                " or %s. Others like it are only counted",
                client,
                BROKEN[transport],
            )

    def check_alarms(self) -> None:
        """Refuse new requests while earlier ones cannot be stored or derived.

        Raises:
            RefusedError: With 503, if an alarm has lasted too long.
        """
        if reason := self.alarms.refusal():
            raise unavailable(reason)


class Accepted(NamedTuple):
    """An accepted request that may not be on disk yet, with its answer and its counts."""

    durable: Future[None]
    """Resolved by the spool's thread once the request is on disk."""
    response: Response
    records: int
    rejected: int

    async def until_durable(self) -> None:
        """Wait until the request is on disk.

        Raises:
            TimeoutError: If that takes longer than `DURABLE_SECONDS`.
        """
        async with asyncio.timeout(DURABLE_SECONDS):
            # A timeout would cancel the future, which the spool still has to resolve: shield it.
            await asyncio.shield(asyncio.wrap_future(self.durable))


def accept(spool: Spool, signal: str, body: bytes, *, as_json: bool = False) -> Accepted:
    """Check a decompressed request and append it to the spool.

    Raises:
        RefusedError: If it is not OTLP, or the spool accepts no requests at present.
    """
    (request, broken), body = _parse(signal, body, as_json=as_json)
    response, records, rejected = ANSWERS[signal](request, broken)
    if signal == "metrics":
        return Accepted(_done(), response, records, rejected)
    durable = _append(spool, "traces" if signal == "traces" else "logs", body, records)
    return Accepted(durable, response, records, rejected)


def accept_feedback(spool: Spool, body: bytes) -> Accepted:
    """Check decompressed judgements and append the valid ones to the spool, as log records.

    Raises:
        RefusedError: If the body is not JSON, or the spool accepts no requests at present.
    """
    try:
        read = read_feedback(body, time.time_ns())
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"not feedback in JSON: {error}") from error
    request = read.request.SerializeToString()
    durable = _append(spool, "logs", request, read.stored) if read.stored else _done()
    return Accepted(durable, read.answer(), read.stored, len(read.refused))


def encode(message: Response, *, as_json: bool) -> bytes:
    """Write a response in the encoding of its request."""
    if not isinstance(message, Message):
        return json.dumps(message).encode()
    if as_json:
        return json.dumps(MessageToDict(message)).encode()
    return message.SerializeToString()


def _parse(signal: str, body: bytes, *, as_json: bool) -> tuple[Read[Any], bytes]:
    """Parse a request; return it with the protobuf bytes to store, valid for every parser."""
    kind = REQUESTS[signal]
    try:
        if as_json:
            read = read_json(kind, body)
            return read, read.request.SerializeToString()
        try:
            return Read(kind.FromString(body), []), body
        except DecodeError:
            # One bad text or record makes the parser refuse the whole request.
            body = repair(kind, body)
            return Read(kind.FromString(body), []), body
    except (DecodeError, ValueError) as error:
        form = "OTLP/JSON" if as_json else "protobuf"
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"not an {kind.__name__} in {form}: {error}"
        ) from error


class _Answer(NamedTuple):
    response: Message
    records: int
    rejected: int


def _traces(request: Any, broken: list[str]) -> _Answer:
    response = ExportTraceServiceResponse()
    scopes = [scope.spans for one in request.resource_spans for scope in one.scope_spans]
    # Runs once a span: each id is read from protobuf once, and no helper function is called.
    rejected = sum(
        (trace := span.trace_id) == NO_TRACE
        or len(trace) != len(NO_TRACE)
        or (own := span.span_id) == NO_SPAN
        or len(own) != len(NO_SPAN)
        for spans in scopes
        for span in spans
    )
    if rejected:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = broken[0] if broken else BAD_IDS
    return _Answer(response, sum(map(len, scopes)) - rejected, rejected)


def _logs(request: Any, broken: list[str]) -> _Answer:
    response = ExportLogsServiceResponse()
    scopes = [scope.log_records for one in request.resource_logs for scope in one.scope_logs]
    rejected = sum(log.event_name == REJECTED_RECORD for logs in scopes for log in logs)
    if rejected:
        response.partial_success.rejected_log_records = rejected
        response.partial_success.error_message = broken[0] if broken else BAD_LOGS
    return _Answer(response, sum(map(len, scopes)) - rejected, rejected)


def _metrics(request: Any, _broken: list[str]) -> _Answer:
    response = ExportMetricsServiceResponse()
    points = sum(
        len(getattr(metric, str(metric.WhichOneof("data"))).data_points)
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.WhichOneof("data")
    )
    if points:
        response.partial_success.rejected_data_points = points
        response.partial_success.error_message = NO_METRICS
    return _Answer(response, 0, points)


ANSWERS = {"traces": _traces, "logs": _logs, "metrics": _metrics}


def _append(spool: Spool, signal: Signal, body: bytes, rows: int) -> Future[None]:
    try:
        return spool.append(signal, body, rows)
    except SpoolError as error:
        raise unavailable(error) from error


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future
