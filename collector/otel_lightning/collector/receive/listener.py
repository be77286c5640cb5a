"""The HTTP server: one socket, every connection bounded in time, certificates that can change."""

import os
import socket
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.server.embed import AsyncWorker, Server

from otel_lightning.collector.receive.http import Application
from otel_lightning.collector.receive.tls import Tls

CONNECTIONS = 4096  # open at once; granian's default of 128 lets idle ones keep others out
HEADER_SECONDS = 30  # for a request's headers, and for the next request on an idle connection
SOCKET_HOLDER: Any = SocketHolder  # its stub leaves out the constructor


class OneSocketServer(Server):
    """Granian on one listening socket.

    On Linux each of its workers opens one of its own (SO_REUSEPORT). When certificates are
    reloaded, the old worker closes its socket, and the connections that wait in it are lost. Of
    one socket that both hold, the new worker takes them over.
    """

    def _init_shared_socket(self) -> None:
        family = socket.AF_INET6 if ":" in self.bind_addr else socket.AF_INET
        address = (self.bind_addr, self.bind_port)
        self._listening = socket.create_server(address, family=family, backlog=self.backlog)
        self._listening.settimeout(0)

    def _spawn_worker(self, *args: Any, **kwargs: Any) -> AsyncWorker:
        own = os.dup(self._listening.fileno())  # a worker closes it when it stops
        self._shd = SOCKET_HOLDER(own, False, self.backlog)  # noqa: FBT003  it takes no names
        return super()._spawn_worker(*args, **kwargs)

    async def shutdown(self, exit_code: int = 0) -> None:
        """Stop listening, and let the workers finish."""
        self._listening.close()
        await super().shutdown(exit_code)  # type: ignore[no-untyped-call]


def server(application: Application, host: str, port: int, tls: Tls | None = None) -> Server:
    """Make the HTTP server; `await serve()` runs it."""
    return OneSocketServer(
        application,
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,  # while it waits to learn which version, no timeout runs
        websockets=False,
        log_enabled=False,
        backlog=1024,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000),
        **_ssl(tls),
    )


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
