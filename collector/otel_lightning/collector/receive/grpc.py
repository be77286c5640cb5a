"""OTLP over gRPC: each request is answered once it is durable.

gRPC passes the bytes on without parsing them, because the spool stores bytes.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from otel_lightning.collector.receive.accept import DURABLE_SECONDS, Receiver, accept, encode
from otel_lightning.collector.receive.metrics import Counts
from otel_lightning.collector.receive.refusals import RefusedError, refusal_of

if TYPE_CHECKING:
    from otel_lightning.collector.receive.tls import Tls

logger = logging.getLogger(__name__)

THREADS = 32  # requests handled at once: a thread waits until its request is durable
SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
OPTIONS = (
    ("grpc.so_reuseport", 0),  # with it a second ingester would silently get half of the requests
    ("grpc.keepalive_time_ms", 60_000),  # ping a silent client to detect a dead connection
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.server_handshake_timeout_ms", 30_000),  # 120 s by default
    # Exporters may ping every 10 s. The default, 5 min, answers "too_many_pings" and disconnects.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)

CODES = {code.value[0]: code for code in grpc.StatusCode}

Export = Callable[[bytes, grpc.ServicerContext], bytes]


def server(
    receiver: Receiver, address: str, certificates: "GrpcCertificates | None" = None
) -> grpc.Server:
    """Create the gRPC server and bind its address; `start()` runs it.

    Raises:
        RuntimeError: If the address cannot be bound.
    """
    options = [*OPTIONS, ("grpc.max_receive_message_length", receiver.max_body)]
    grpc_server = grpc.server(ThreadPoolExecutor(THREADS, "grpc"), options=options)
    for signal, service in SERVICES.items():
        method: Any = grpc.unary_unary_rpc_method_handler(_export(receiver, signal))
        handler = grpc.method_handlers_generic_handler(service, {"Export": method})
        grpc_server.add_generic_rpc_handlers((handler,))
    if certificates:
        grpc_server.add_secure_port(address, certificates.credentials())
    else:
        grpc_server.add_insecure_port(address)
    return grpc_server


class GrpcCertificates:
    """Certificates for gRPC's new connections: the contents of the files at the last `reload`."""

    def __init__(self, tls: "Tls") -> None:
        self._tls = tls
        self.reload()

    def reload(self) -> None:
        """Read the files again."""
        tls = self._tls
        self._current = grpc.ssl_server_certificate_configuration(
            [(tls.key.read_bytes(), tls.cert.read_bytes())],
            tls.client_ca.read_bytes() if tls.client_ca else None,
        )

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials that change with each `reload`."""
        return grpc.dynamic_ssl_server_credentials(
            self._current,
            # gRPC calls this for each new connection. Open connections keep the certificate that
            # they began with.
            lambda: self._current,
            require_client_authentication=self._tls.client_ca is not None,
        )


class WrongProtocol:
    """Counts the clients that speak another protocol to the gRPC port, and logs the first one.

    They cannot be answered: gRPC's server closes the connection.
    """

    def __init__(self, counts: Counts, grpc_port: int, http_port: int) -> None:
        self._counts, self._grpc_port, self._http_port = counts, grpc_port, http_port

    def found(self, client: str) -> None:
        """Count a connection from this IP address."""
        if self._counts.wrong_port("grpc") > 1:
            return
        logger.warning(
            "%s speaks another protocol than gRPC to port %d, probably OTLP over HTTP, or only one"
            " of the two speaks TLS. What it sent is lost. Exporters with http/protobuf or"
            " http/json send to port %d; for this one set OTEL_EXPORTER_OTLP_PROTOCOL=grpc. Only"
            " the first such client is logged; /metrics counts all.",
            client, self._grpc_port, self._http_port,
        )  # fmt: skip


def _export(receiver: Receiver, signal: str) -> Export:
    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            receiver.guard.admit(_authorization(context))
            receiver.check_alarms()
            accepted = accept(receiver.spool, signal, body)
            accepted.durable.result(DURABLE_SECONDS)
        except Exception as error:  # noqa: BLE001  every failure has its answer
            refusal = refusal_of(error)
            receiver.note_refused("grpc", signal, refusal, context.peer())
            _abort(context, refusal)
        receiver.counts.stored("grpc", signal, accepted.records, accepted.rejected)
        return encode(accepted.response, as_json=False)

    return export


def _authorization(context: grpc.ServicerContext) -> str | None:
    values = (value for key, value in context.invocation_metadata() if key == "authorization")
    value = next(values, None)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _abort(context: grpc.ServicerContext, refusal: RefusedError) -> NoReturn:
    if refusal.is_temporary:  # RetryInfo tells the exporter to send the request again
        details = ("grpc-status-details-bin", refusal.message().SerializeToString())
        context.set_trailing_metadata((details,))
    context.abort(CODES[refusal.code], str(refusal))
