"""The HTTP server: one socket, every connection bounded in time, certificates that can change."""

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

from otel_lightning.collector.receive.http import Application
from otel_lightning.collector.receive.tls import Tls

HEADER_SECONDS = 30  # for a request's headers, and for the next request on an idle connection
RETIRE_SECONDS = 150  # by then each connection of an old worker was used or has idled too long
OPEN_FILES = Path("/proc/self/fd")
SOCKET_HOLDER: Any = SocketHolder  # its stub leaves out the constructor

MakeApplication = Callable[[Event], Application]


class OneSocketServer(Server):
    """Granian on one listening socket.

    On Linux each of its workers opens one of its own (SO_REUSEPORT). When certificates are
    reloaded, a new worker takes the place of the old one, whose socket would be closed with all
    connections that wait in it, or are idle. Of one socket that both hold, the new worker takes
    what comes from then on, and the old one goes on with the connections that it has until each
    has been told, with an answer, to open another.
    """

    _retiring: asyncio.Task[None]
    listening: socket.socket

    def _init_shared_socket(self) -> None:
        self.listening.listen(self.backlog)
        self.listening.settimeout(0)

    def _spawn_worker(self, **kwargs: Any) -> AsyncWorker:  # type: ignore[override]  # by name only
        own = os.dup(self.listening.fileno())  # a worker closes it when it stops
        self._shd = SOCKET_HOLDER(own, False, self.backlog)  # noqa: FBT003  it takes no names
        self._leaving = Event()
        make_application: MakeApplication = kwargs.pop("callback_loader")
        return super()._spawn_worker(callback_loader=make_application(self._leaving), **kwargs)

    async def _respawn_workers(
        self,
        workers: Any,  # noqa: ARG002  there is one
        spawn_target: Any,
        target_loader: Any,
        delay: float = 0,  # noqa: ARG002  granian's, and too short
    ) -> None:
        old = self.wrks[-1]
        self._leaving.set()
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
        """Stop listening, and let the workers finish."""
        self.listening.close()
        await super().shutdown(exit_code)  # type: ignore[no-untyped-call]


def server(
    make_application: MakeApplication,
    bound: socket.socket,
    tls: Tls | None,
    connections: int,
) -> Server:
    """Make the HTTP server; `await serve()` runs it.

    Args:
        make_application: Given an event that tells when to close connections, gives what answers.
        bound: A socket that has its address, and is closed with the server.
        tls: What to show to clients; read again at each `reload()`.
        connections: How many may be open at once. Granian's default of 128 lets idle ones keep
            others out.
    """
    host, port, *_ = bound.getsockname()
    made = OneSocketServer(
        make_application,
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        # Without TLS HTTP/2 is spoken too, to tell a gRPC exporter that it has the wrong port.
        http=HTTPModes.http1 if tls else HTTPModes.auto,
        websockets=False,
        log_enabled=False,
        backlog=1024,
        backpressure=connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000),
        **_ssl(tls),
    )
    made.listening = bound
    return made


def _deafen(listening: socket.socket) -> None:
    """Put a socket that nobody connects to in the place of all other handles of this one.

    Whoever held those accepts nothing any more, and closes what it has to close.
    """
    if not OPEN_FILES.exists():  # not on Linux: old and new accept side by side for a while
        return
    number = os.fstat(listening.fileno()).st_ino
    with socket.socket(socket.AF_UNIX) as nowhere:
        nowhere.bind("")
        nowhere.listen()
        nowhere.settimeout(0)
        for other in [int(file.name) for file in OPEN_FILES.iterdir()]:
            with suppress(OSError):  # the handle with which the folder was read
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
