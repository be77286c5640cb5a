"""OTLP over gRPC: raw bytes in, answered when durable."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_lightning.collector.receive.answers import (
    MAX_BODY_BYTES,
    RETRY_AFTER_SECONDS,
    RefusedError,
    accept,
    unavailable,
)
from otel_lightning.collector.spool import Spool, SpoolError

THREADS = 32  # a thread waits while its request becomes durable
SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
CODES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}

Export = Callable[[bytes, grpc.ServicerContext], bytes]


def server(spool: Spool, address: str) -> grpc.Server:
    """Make the gRPC server on an address; `start()` runs it.

    Raises:
        RuntimeError: If the address cannot be bound.
    """
    options = [
        ("grpc.max_receive_message_length", MAX_BODY_BYTES),
        ("grpc.so_reuseport", 0),  # or a second ingester would silently take half of the requests
    ]
    grpc_server = grpc.server(ThreadPoolExecutor(THREADS, "grpc"), options=options)
    for signal, service in SERVICES.items():
        method: Any = grpc.unary_unary_rpc_method_handler(_export(spool, signal))
        handler = grpc.method_handlers_generic_handler(service, {"Export": method})
        grpc_server.add_generic_rpc_handlers((handler,))
    grpc_server.add_insecure_port(address)
    return grpc_server


def _export(spool: Spool, signal: str) -> Export:
    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            accepted = accept(spool, signal, body)
            accepted.durable.result()
        except SpoolError as error:
            _abort(context, unavailable(error))
        except RefusedError as refusal:
            _abort(context, refusal)
        return accepted.response.SerializeToString()

    return export


def _abort(context: grpc.ServicerContext, refusal: RefusedError) -> None:
    code = CODES.get(refusal.status, grpc.StatusCode.INVALID_ARGUMENT)
    if code is grpc.StatusCode.UNAVAILABLE:
        retry = AnyMessage()
        retry.Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_SECONDS)))
        status = Status(code=code.value[0], message=str(refusal), details=[retry])
        details = ("grpc-status-details-bin", status.SerializeToString())
        context.set_trailing_metadata((details,))
    context.abort(code, str(refusal))
