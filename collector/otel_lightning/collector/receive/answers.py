"""What every transport does with a request, and what OTLP says to answer.

Source:
    OTLP specification 1.11: full success, partial success, failures, and which codes are retried.
"""

import json
import zlib
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, NamedTuple

import zstandard
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status
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

from otel_lightning.collector.otlp_json import parse_json
from otel_lightning.collector.spool import Spool, SpoolError

MAX_BODY_BYTES = 64 * 1024 * 1024
RETRY_AFTER_SECONDS = 1
PROTOBUF, JSON = "application/x-protobuf", "application/json"
REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
NO_TRACE, NO_SPAN = bytes(16), bytes(8)


class RefusedError(Exception):
    """A request that must not be stored; `status` is the HTTP status that says why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Accepted(NamedTuple):
    """A request on its way: when it is durable, and what to answer then."""

    durable: Future[None]
    response: Message


def accept(spool: Spool, signal: str, body: bytes, *, as_json: bool = False) -> Accepted:
    """Check a decompressed request and put it on the spool.

    Raises:
        RefusedError: If it is not OTLP, or the spool takes nothing at present.
    """
    request = _parse(signal, body, as_json=as_json)
    if signal == "metrics":
        return _metrics(request)
    if as_json:
        body = request.SerializeToString()
    try:
        durable = spool.append("traces" if signal == "traces" else "logs", body)
    except SpoolError as error:
        raise unavailable(error) from error
    return Accepted(durable, _response(signal, request))


def unavailable(error: Exception) -> RefusedError:
    """The answer after which every exporter tries again."""
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"not stored: {error}. Try again.")


def decompress(body: bytes, encoding: str, limit: int = MAX_BODY_BYTES) -> bytes:
    """Undo a Content-Encoding without ever holding more than `limit` bytes.

    Raises:
        RefusedError: If the encoding is unknown, the body is damaged, or it is too large.
    """
    try:
        if encoding in ("", "identity"):
            data = body
        elif encoding in ("gzip", "deflate"):
            data = _inflate(body, limit)
        elif encoding == "zstd":
            data = _unzstd(body, limit)
        else:
            raise RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Encoding '{encoding}' is not supported. Use gzip, deflate, zstd or none.",
            )
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"the body is not valid {encoding}: {error}"
        ) from error
    if len(data) > limit:
        raise too_large(limit)
    return data


def too_large(limit: int) -> RefusedError:
    """The answer to a body over the limit, before or after decompression."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request is larger than {limit} bytes. Send smaller batches.",
    )


def encode(message: Message, *, as_json: bool) -> bytes:
    """Write a response in the encoding of its request."""
    if as_json:
        return json.dumps(MessageToDict(message)).encode()
    return message.SerializeToString()


def status_message(code: int, message: str) -> Status:
    """The body that OTLP asks for with every failure."""
    return Status(code=code, message=message)


def _inflate(body: bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=47)  # tells gzip and zlib apart by their header
    data = decompressor.decompress(body, limit + 1)
    if len(data) <= limit and not decompressor.eof:
        raise EOFError("it is cut off")
    return data


def _unzstd(body: bytes, limit: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        return bytes(reader.read(limit + 1))


def _parse(signal: str, body: bytes, *, as_json: bool) -> Any:
    kind = REQUESTS[signal]
    try:
        return parse_json(kind, body) if as_json else kind.FromString(body)
    except (DecodeError, ValueError) as error:
        form = "OTLP/JSON" if as_json else "protobuf"
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"not an {kind.__name__} in {form}: {error}"
        ) from error


def _response(signal: str, request: Any) -> Message:
    if signal == "logs":
        return ExportLogsServiceResponse()
    response = ExportTraceServiceResponse()
    rejected = sum(
        len(span.trace_id) != len(NO_TRACE)
        or len(span.span_id) != len(NO_SPAN)
        or span.trace_id == NO_TRACE
        or span.span_id == NO_SPAN
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )
    if rejected:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = (
            "trace_id must be 16 bytes and span_id 8 bytes, neither all zero; "
            "the reasons are in the table `rejected`"
        )
    return response


def _metrics(request: Any) -> Accepted:
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
        response.partial_success.error_message = "metrics are not stored: traces and logs are"
    done: Future[None] = Future()
    done.set_result(None)
    return Accepted(done, response)
