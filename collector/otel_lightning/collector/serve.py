"""`lightning-ingest serve`: receivers, spool, loader and SQL server in one process."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from otel_lightning.collector.loader import Loader
from otel_lightning.collector.receive import grpc, http
from otel_lightning.collector.spool import Spool, spool_folder
from otel_lightning.collector.store import (
    Server,
    StoreError,
    open_store,
    server_file,
    write_server,
)

DRAIN_SECONDS = 10
INTERRUPTED = 130


class Address(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`.

        Raises:
            ValueError: If it is not of that form.
        """
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"'{text}' is not HOST:PORT. Example: 127.0.0.1:4318")
        return cls(host.strip("[]"), int(port))

    def reserve(self) -> Self:
        """Check that the address is free, and settle on a port.

        Raises:
            OSError: If it is in use or not an address of this machine; the message says which.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise OSError(error.errno, _why(self, error)) from error
            return self._replace(port=probe.getsockname()[1])

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def serve(store_path: Path, grpc_at: Address, http_at: Address, say: Callable[[str], None]) -> None:
    """Receive until SIGTERM or SIGINT, then store what was received and leave.

    Raises:
        StoreError: If the store cannot be opened for writing.
        OSError: If an address cannot be bound.
    """
    grpc_at, http_at = grpc_at.reserve(), http_at.reserve()
    store = open_store(store_path)
    if store.server:
        store.close()
        raise StoreError(
            f"'{store_path}' is already served by process {store.server.pid} at "
            f"{store.server.http}. Send there, or choose another store with --store."
        )
    spool = Spool(spool_folder(store_path))
    loader = Loader(store.cursor(), spool)
    loader.start()
    server = store.serve(str(http_at))
    try:
        asyncio.run(_receive(spool, grpc_at, http_at, lambda: _ready(store_path, server, say)))
    finally:
        server_file(store_path).unlink(missing_ok=True)
        spool.close()
        loader.stop()
        store.close()
    say("Stopped; everything that was acknowledged is stored.")


async def _receive(
    spool: Spool, grpc_at: Address, http_at: Address, ready: Callable[[], None]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopped)
    over_grpc = grpc.server(spool, str(grpc_at))
    over_http = http.server(spool, *http_at)
    over_grpc.start()
    serving = asyncio.create_task(over_http.serve())
    await _until_open(http_at)
    ready()
    await stopped.wait()
    over_grpc.stop(grace=DRAIN_SECONDS / 2).wait()
    over_http.stop()  # type: ignore[no-untyped-call]
    await serving


def _stop(stopped: asyncio.Event) -> None:
    if stopped.is_set():
        os._exit(INTERRUPTED)  # asked twice: what was acknowledged lies on the spool
    stopped.set()


def _ready(store_path: Path, server: Server, say: Callable[[str], None]) -> None:
    write_server(store_path, server)
    say(f"Ready: OTLP over HTTP at http://{server.http}, stored in {store_path}.")


async def _until_open(address: Address) -> None:
    while True:
        with suppress(ConnectionError):
            _, writer = await asyncio.open_connection(*address)
            writer.close()
            return
        await asyncio.sleep(0.02)


def _why(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use. Stop what listens there, or choose another address with "
            f"--grpc and --http."
        )
    return f"{address} cannot be bound: {error.strerror}. Choose another with --grpc and --http."
