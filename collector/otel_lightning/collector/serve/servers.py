"""The servers of the process: HTTP, and gRPC if it is wanted."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from otel_lightning.collector.receive.accept import Receiver
from otel_lightning.collector.receive.http import server as http_server
from otel_lightning.collector.receive.http.application import MountedApp, application
from otel_lightning.collector.receive.http.unread_connections import UnreadConnections
from otel_lightning.collector.serve.address import Address
from otel_lightning.collector.serve.settings import Settings
from otel_lightning.collector.serve.watches.ended_connections import Ended, watched

if TYPE_CHECKING:
    from grpc import Server as GrpcServer

    from otel_lightning.collector.receive.grpc import (
        GrpcCertificates,
        IncompleteCalls,
        WrongProtocol,
    )

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.02
GRACE_SECONDS = 4  # part of DRAIN_SECONDS for requests in progress


class BoundSockets(NamedTuple):
    """Sockets that reserve the addresses until the servers listen, and the connection limit."""

    grpc: socket.socket | None
    http: socket.socket
    connections: int


class Servers:
    """The servers of one process. Use them in one event loop."""

    def __init__(
        self,
        receiver: Receiver,
        settings: Settings,
        bound: BoundSockets,
        apps: Sequence[MountedApp],
    ) -> None:
        """Prepare the servers; `start` lets them accept requests.

        Args:
            receiver: Checks the requests, and appends them to the spool.
            settings: Addresses and certificates.
            bound: Sockets at these addresses.
            apps: The other parts of the HTTP server, such as the page.
        """
        if bound.grpc:
            bound.grpc.close()  # gRPC cannot use an open socket: it binds the address again
        # Not by the name that the user gave, which may stop resolving.
        numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
        self._place = socket.getnameinfo(bound.http.getsockname(), numeric)
        port: int = bound.http.getsockname()[1]
        self._http_port = port
        self._unread = UnreadConnections(receiver.counts, port, tls=settings.tls is not None)
        self._grpc = _grpc_parts(receiver, settings, settings.grpc) if settings.grpc else None
        self._http = http_server.server(
            partial(application, receiver, apps, self._unread),
            bound.http,
            settings.tls,
            bound.connections,
        )
        self.http_task: asyncio.Task[None]
        """Runs the HTTP server, once it is started."""

    def start(self) -> Iterable[threading.Thread]:
        """Start the servers, and return the threads that take requests over gRPC."""
        threads: list[threading.Thread] = []
        if self._grpc:
            threads = [*start_grpc(self._grpc.server), self._grpc.incomplete]
            self._grpc.incomplete.start()
        self.http_task = asyncio.create_task(self._http.serve())
        return threads

    async def until_open(self) -> None:
        """Wait until the HTTP server accepts connections.

        Raises:
            ConnectionError: If it ends instead.
        """
        while not self.http_task.done():
            with suppress(ConnectionError):
                _, writer = await asyncio.open_connection(*self._place)
                writer.close()
                return
            await asyncio.sleep(LOOK_SECONDS)
        raise self.http_ended()

    @contextmanager
    def reporting_unread(self) -> Iterator[None]:
        """Report, while the block runs, clients of which nothing can be read."""
        with ExitStack() as watches:
            watches.enter_context(
                watched(self._http_port, lambda ended: self._unread.note_end(ended.client))
            )
            if self._grpc:
                watches.enter_context(watched(self._grpc.port, self._grpc.note_end))
            yield

    def http_ended(self) -> ConnectionError:
        """Return the error of an HTTP server that ended without being asked."""
        reason = self.http_task.exception() or "it gave no reason"
        return ConnectionError(
            f"the HTTP server ended by itself ({reason}). What was acknowledged is kept; start "
            f"lightning-ingest again."
        )

    def reload_certificates(self) -> None:
        """Read the files of the certificates again."""
        if self._grpc and self._grpc.certificates:
            self._grpc.certificates.reload()
        self._http.reload()  # type: ignore[no-untyped-call]

    async def stop(self) -> None:
        """Accept no new requests, and wait up to `GRACE_SECONDS` for those in progress."""
        waited: list[Awaitable[object]] = [asyncio.wait([self.http_task], timeout=GRACE_SECONDS)]
        if self._grpc:
            self._grpc.incomplete.stop()
            # The thread that ends calls after this time may find no room. They end with us.
            with suppress(RuntimeError):
                waited.append(_until_set(self._grpc.server.stop(grace=GRACE_SECONDS)))
        self._http.stop()  # type: ignore[no-untyped-call]
        await asyncio.gather(*waited)


async def _until_set(event: threading.Event) -> None:
    """Wait for an event without a thread: the system may have no room for another one.

    The wait is limited, because the event is never set if the thread that sets it has died.
    """
    deadline = time.monotonic() + GRACE_SECONDS + 1
    while not event.is_set() and time.monotonic() < deadline:  # noqa: ASYNC110  no thread may wait
        await asyncio.sleep(LOOK_SECONDS)


class _GrpcParts(NamedTuple):
    """The gRPC server, its certificates, and what watches its calls and its port."""

    server: "GrpcServer"
    incomplete: "IncompleteCalls"
    certificates: "GrpcCertificates | None"
    wrong: "WrongProtocol"
    port: int

    def note_end(self, ended: Ended) -> None:
        """Report a connection that has ended, if its client spoke another protocol."""
        if ended.is_not_grpc:
            self.wrong.found(ended.address)


def _grpc_parts(receiver: Receiver, settings: Settings, address: Address) -> _GrpcParts:
    # Only here: gRPC takes 0.05 CPU-seconds to load and to start.
    from otel_lightning.collector.receive import grpc

    certificates = grpc.GrpcCertificates(settings.tls) if settings.tls else None
    wrong = grpc.WrongProtocol(receiver.counts, address.port, settings.http.port)
    incomplete = grpc.IncompleteCalls()
    return _GrpcParts(
        grpc.server(receiver, str(address), incomplete, certificates),
        incomplete,
        certificates,
        wrong,
        address.port,
    )


def start_grpc(server: "GrpcServer") -> list[threading.Thread]:
    """Start the gRPC server, and return its threads that take requests.

    If one of them dies, as when the system has no room for another thread, the port still accepts
    connections, and nobody answers.
    """
    before = set(threading.enumerate())
    server.start()
    # grpcio has no way to ask for them. Python names a thread after the function that it runs.
    new = [one for one in threading.enumerate() if one not in before and "_serve" in one.name]
    for thread in new:
        thread.name = "gRPC"
    if not new:
        logger.error(
            "The thread of the gRPC server is not found: this version of grpcio names it "
            "otherwise. If it dies, nobody notices, and no request over gRPC is answered. Install "
            "another version of grpcio."
        )
    return new
