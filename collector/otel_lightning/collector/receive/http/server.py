"""The HTTP server: one socket, a timeout on each connection, certificates reloaded on SIGHUP."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.server.embed import AsyncWorker, Server

from otel_lightning.collector.receive.http.application import Application
from otel_lightning.collector.receive.tls import Tls

HEADER_SECONDS = 30  # timeout for a request's headers, and of an idle connection
RETIRE_SECONDS = 150  # an old worker's connections have all been used or timed out by then
OPEN_FILES = Path("/proc/self/fd")
SOCKET_HOLDER: Any = SocketHolder  # its type stub lacks the constructor

MakeApplication = Callable[[Event], Application]


class OneSocketServer(Server):
    """Granian with one listening socket that all workers share.

    On Linux each granian worker opens its own socket (SO_REUSEPORT). A reload of the certificates
    starts a new worker and stops the old one. The old worker's socket would then be closed, with
    the connections in its accept queue. With a shared socket the new worker accepts all new
    connections. The old worker keeps its open connections, and its next answer on each closes it
    (`Connection: close`), so that the client opens a new one.
    """

    _retiring: asyncio.Task[None]
    listening: socket.socket

    def _init_shared_socket(self) -> None:
        self.listening.listen(self.backlog)
        self.listening.settimeout(0)

    def _spawn_worker(self, **kwargs: Any) -> AsyncWorker:  # type: ignore[override]  # by name only
        own = os.dup(self.listening.fileno())  # a worker closes its socket when it stops
        self._shd = SOCKET_HOLDER(own, False, self.backlog)  # noqa: FBT003  positional only
        self._leaving = Event()
        make_application: MakeApplication = kwargs.pop("callback_loader")
        return super()._spawn_worker(callback_loader=make_application(self._leaving), **kwargs)

    async def _respawn_workers(
        self,
        workers: Any,  # noqa: ARG002  there is only one
        spawn_target: Any,
        target_loader: Any,
        delay: float = 0,  # noqa: ARG002  granian's delay is too short, see RETIRE_SECONDS
    ) -> None:
        old = self.wrks[-1]
        self._leaving.set()  # from here on the old worker closes a connection after its answer
        _deafen(self.listening)
        new = self._spawn_worker(idx=old.idx, target=spawn_target, callback_loader=target_loader)
        new.start()  # type: ignore[no-untyped-call]
        self.wrks.append(new)
        self._retiring = asyncio.create_task(self._retire(old))

    async def _retire(self, old: AsyncWorker) -> None:
        await asyncio.sleep(RETIRE_SECONDS)
        self.wrks.remove(old)
        old.terminate()  # type: ignore[no-untyped-call]
        await old.join()  # type: ignore[no-untyped-call]

    async def shutdown(self, exit_code: int = 0) -> None:
        """Stop listening, and let the workers finish their requests."""
        self.listening.close()
        await super().shutdown(exit_code)  # type: ignore[no-untyped-call]


def server(
    make_application: MakeApplication,
    bound: socket.socket,
    tls: Tls | None,
    connections: int,
) -> Server:
    """Create the HTTP server; `await serve()` runs it.

    Args:
        make_application: Creates the application. Its argument is an event; once it is set, the
            application closes connections.
        bound: A bound socket, which the server closes.
        tls: Certificate files, read again at each `reload()`; None serves without TLS.
        connections: Most connections open at once. With granian's default of 128, idle
            connections would soon block new ones.
    """
    host, port, *_ = bound.getsockname()
    server = OneSocketServer(
        make_application,
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        # Without TLS the server speaks HTTP/2 too, to tell a gRPC exporter that the port is wrong.
        http=HTTPModes.http1 if tls else HTTPModes.auto,
        websockets=False,
        log_enabled=False,
        backlog=1024,
        backpressure=connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000),
        **_ssl(tls),
    )
    server.listening = bound
    return server


def _deafen(listening: socket.socket) -> None:
    """Replace all duplicates of a socket's descriptor by a socket without any connections.

    A worker that accepts on a duplicate then gets no new connections, and can still close its
    descriptor. Granian has no call to make a worker stop accepting.
    """
    if not OPEN_FILES.exists():  # not Linux: old and new worker both accept for a while
        return
    number = os.fstat(listening.fileno()).st_ino  # the same for all duplicates of a descriptor
    with socket.socket(socket.AF_UNIX) as nowhere:
        nowhere.bind("")
        nowhere.listen()
        nowhere.settimeout(0)
        for other in [int(file.name) for file in OPEN_FILES.iterdir()]:
            with suppress(OSError):  # the descriptor that listed the folder is closed again
                if other != listening.fileno() and os.fstat(other).st_ino == number:
                    os.dup2(nowhere.fileno(), other, inheritable=False)


def _ssl(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl_protocol_min": SSLProtocols.tls12,
        "ssl_cert": tls.cert,
        "ssl_key": tls.key,
        "ssl_ca": tls.client_ca,
        "ssl_client_verify": tls.client_ca is not None,
    }
