"""OTLP over gRPC: each request is answered once it is durable.

gRPC passes the bytes on without parsing them, because the spool stores bytes.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.receive.accept import (
    BODY_SECONDS,
    DURABLE_SECONDS,
    Receiver,
    accept,
    encode,
)
from otel_lightning.collector.receive.metrics import Counts
from otel_lightning.collector.receive.refusals import RefusedError, refusal_of, too_large, too_slow

if TYPE_CHECKING:
    from otel_lightning.collector.receive.tls import Tls

logger = logging.getLogger(__name__)

THREADS = 128
"""Requests at once: each has a thread, which waits for its message and until that is durable."""
READ_BODIES = 2
"""Largest message that is read, as a multiple of the limit: gRPC itself would refuse a larger one,
and tell nobody but the sender."""
LOOK_SECONDS = 1.0
CROWDED_SECONDS = 2.0
"""Longest wait for a message while other calls wait for a thread, and most of the threads wait for
a message. A sender whose call is ended sends it again."""
MOST_CHARACTERS = 120
"""Characters of a method's name that are repeated."""
END_SECONDS = 5.0
"""Longest wait for gRPC to tell whether a call without a message was ended by its sender."""
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

Export = Callable[[Iterator[bytes], grpc.ServicerContext], bytes]


class LeftError(Exception):
    """A call whose sender ended it, or that gRPC refused, before its message was here."""


class CallThreads(ThreadPoolExecutor):
    """The threads that answer calls; each call has one from its start to its answer."""

    def __init__(self, count: int) -> None:
        super().__init__(count, "grpc")
        self.most_incomplete = count * 3 // 4

    def are_wanted(self) -> bool:
        """Return whether calls wait for a thread."""
        return self._work_queue.qsize() > 0


class IncompleteCalls(BackgroundThread):
    """The calls whose message has not arrived yet, and a thread that ends those that take long.

    A client that sends the headers of a request and then nothing, or a byte a second, holds one of
    the `THREADS`. Without a limit, that many of them would stop all receiving over gRPC.
    """

    def __init__(
        self,
        seconds: float = BODY_SECONDS,
        threads: int = THREADS,
        crowded_seconds: float = CROWDED_SECONDS,
    ) -> None:
        """Begin without calls; `start()` runs the thread.

        Args:
            seconds: Longest wait for a message.
            threads: Number of threads that answer calls.
            crowded_seconds: Longest wait while calls wait for a thread, and three quarters of the
                threads wait for messages.
        """
        super().__init__("grpc-messages", LOOK_SECONDS)
        self._longest, self._crowded_seconds = seconds, crowded_seconds
        self.threads = CallThreads(threads)
        self._began: dict[grpc.ServicerContext, float] = {}
        self._ended: dict[grpc.ServicerContext, float] = {}
        """The calls that were ended, with the limit of each in seconds."""

    @property
    def count(self) -> int:
        """Number of calls that wait for their message."""
        return len(self._began)

    def look(self) -> None:
        """End the calls that have waited too long."""
        began = dict(self._began)
        is_crowded = len(began) >= self.threads.most_incomplete and self.threads.are_wanted()
        longest = min(self._longest, self._crowded_seconds) if is_crowded else self._longest
        before = time.monotonic() - longest
        for context, at in began.items():
            if at < before:
                self._ended[context] = longest
                context.cancel()

    def message_of(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Wait for the message of a call, and return it.

        Raises:
            RefusedError: If it took too long, or the call has none.
            LeftError: If the call is over.
        """
        self._began[context] = time.monotonic()
        left = None
        try:
            body = next(messages, None)
        except grpc.RpcError as error:
            body, left = None, error
        finally:
            del self._began[context]
            limit = self._ended.pop(context, None)
        # gRPC may end the messages of a call that was ended before it reports that.
        if limit is not None:
            raise too_slow(limit) from left
        if body is None:
            if left or _is_over(context):
                raise LeftError from left
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the call has no message")
        return body


def _is_over(context: grpc.ServicerContext) -> bool:
    over = threading.Event()
    return not context.add_callback(over.set) or over.wait(END_SECONDS)


def server(
    receiver: Receiver,
    address: str,
    incomplete: IncompleteCalls,
    certificates: "GrpcCertificates | None" = None,
) -> grpc.Server:
    """Create the gRPC server and bind its address; `start()` runs it.

    Raises:
        RuntimeError: If the address cannot be bound.
    """
    options = [*OPTIONS, ("grpc.max_receive_message_length", READ_BODIES * receiver.max_body)]
    grpc_server = grpc.server(incomplete.threads, options=options)
    for signal, service in SERVICES.items():
        # As a stream of one message, so that a sender without a token is refused before its message
        # is read, and the wait for it can be limited. The sender sees no difference.
        method: Any = grpc.stream_unary_rpc_method_handler(_export(receiver, incomplete, signal))
        handler = grpc.method_handlers_generic_handler(service, {"Export": method})
        grpc_server.add_generic_rpc_handlers((handler,))
    grpc_server.add_generic_rpc_handlers((OtherServices(receiver),))
    if certificates:
        grpc_server.add_secure_port(address, certificates.credentials())
    else:
        grpc_server.add_insecure_port(address)
    return grpc_server


class OtherServices(grpc.GenericRpcHandler):
    """Refuses and counts calls of services that we lack; gRPC itself would not report them."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call."""
        refusal = RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED,
            f"'{details.method[:MOST_CHARACTERS]}' is not offered. Exporters of traces call "
            f"'/{SERVICES['traces']}/Export'.",
        )

        def refuse(_messages: Iterator[bytes], context: grpc.ServicerContext) -> NoReturn:
            self._receiver.note_refused("grpc", "", refusal, context.peer())
            _abort(context, refusal)

        return grpc.stream_unary_rpc_method_handler(refuse)


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
            "%s speaks another protocol than gRPC to port %d, probably OTLP over HTTP; or only one"
            " of the two speaks TLS, or it refuses the certificate. What it sent is lost. Exporters"
            " with http/protobuf or http/json send to port %d; for this one set"
            " OTEL_EXPORTER_OTLP_PROTOCOL=grpc. Only the first such client is logged; /metrics"
            " counts all.",
            client, self._grpc_port, self._http_port,
        )  # fmt: skip


def _export(receiver: Receiver, incomplete: IncompleteCalls, signal: str) -> Export:
    def export(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        client = context.peer()  # a call that was ended does not tell it
        try:
            receiver.guard.admit(_authorization(context))
            receiver.check_alarms()
            body = incomplete.message_of(messages, context)
            accepted = accept(receiver.spool, signal, _checked(body, receiver.max_body))
            accepted.durable.result(DURABLE_SECONDS)
        except LeftError:
            receiver.note_left("grpc", signal, client)
            return b""  # nobody gets it
        except Exception as error:  # noqa: BLE001  every failure has its answer
            refusal = refusal_of(error)
            receiver.note_refused("grpc", signal, refusal, client)
            _abort(context, refusal)
        receiver.counts.stored("grpc", signal, accepted.records, accepted.rejected)
        return encode(accepted.response, as_json=False)

    return export


def _checked(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise too_large(limit)
    return body


def _authorization(context: grpc.ServicerContext) -> str | None:
    values = (value for key, value in context.invocation_metadata() if key == "authorization")
    value = next(values, None)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _abort(context: grpc.ServicerContext, refusal: RefusedError) -> NoReturn:
    if refusal.is_temporary:  # RetryInfo tells the exporter to send the request again
        details = ("grpc-status-details-bin", refusal.message().SerializeToString())
        context.set_trailing_metadata((details,))
    context.abort(CODES[refusal.code], str(refusal))
