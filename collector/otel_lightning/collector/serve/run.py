"""`lightning-ingest serve`: receivers, spool, loader and SQL server in one process."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from otel_lightning.collector.files.process_file import starting
from otel_lightning.collector.files.reason import reason
from otel_lightning.collector.last_run import Run
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.process.allocator import share_memory
from otel_lightning.collector.receive.accept import Receiver
from otel_lightning.collector.receive.access import AccessGuard
from otel_lightning.collector.receive.http.sql import SqlRoute
from otel_lightning.collector.receive.tls import Tls
from otel_lightning.collector.serve.gauges import gauges
from otel_lightning.collector.serve.page import open_page
from otel_lightning.collector.serve.parts import Parts, start_parts
from otel_lightning.collector.serve.servers import BoundSockets, Servers
from otel_lightning.collector.serve.settings import Settings
from otel_lightning.collector.serve.stop_signals import StopSignals
from otel_lightning.collector.serve.watches.certificates import CertificateWatch
from otel_lightning.collector.serve.watches.descriptors import (
    connections_within,
    raise_limit,
)
from otel_lightning.collector.serve.watches.supervision import Supervisor
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import (
    Server,
    Store,
    StoreError,
    open_when_free,
    server_file,
)
from otel_lightning.collector.store.clients.cancellation import Cancellation
from otel_lightning.collector.store.clients.read_only import attach_line
from otel_lightning.collector.store.deduplication import kept_filters
from otel_lightning.collector.store.files.spilling import erase_spilled
from otel_lightning.collector.store.times_as_text import all_times_as_text
from otel_lightning.collector.terminal.next_command import next_command

logger = logging.getLogger(__name__)

HELD_SECONDS = 8.0  # for another process to close the store; exporters give up after 10
SELECT_SECONDS = 120.0  # for a SELECT over HTTP
FAILED = 1
NO_THREAD = "start new thread"
"""Part of Python's error if the system refuses a thread."""


def serve(settings: Settings, echo: Callable[[str], None]) -> None:
    """Receive until SIGTERM or SIGINT, then store the received requests and return.

    Args:
        settings: Checked settings.
        echo: Shows the user a line of text.

    Raises:
        StoreError: If the store cannot be opened for writing.
        OSError: If an address cannot be bound, or a server stops without being asked.
    """
    # First of all: a signal that comes during the start ends in an orderly stop, too.
    stopping = StopSignals()
    most_connections = connections_within(raise_limit())
    with ExitStack() as sockets:
        grpc_socket = sockets.enter_context(settings.grpc.bind()) if settings.grpc else None
        http_socket = sockets.enter_context(settings.http.bind())
        # With port 0, the system has chosen the port.
        grpc = settings.grpc.of(grpc_socket) if settings.grpc and grpc_socket else None
        settings = replace(settings, grpc=grpc, http=settings.http.of(http_socket))
        bound = BoundSockets(grpc_socket, http_socket, most_connections)
        try:
            _serve(settings, bound, stopping, echo)
        except BaseException as error:
            stopping.note_end(error)
            raise
        stopping.note_end()


def _serve(
    settings: Settings, bound: BoundSockets, stopping: StopSignals, echo: Callable[[str], None]
) -> None:
    """Start the parts of the process, receive until it has to stop, and stop the parts."""
    with starting(settings.store):
        store = _open(settings)
        stopping.run = run = Run(settings.store)
    kept = kept_filters.take(settings.store)
    erase_spilled(settings.store)
    _prepare_memory()
    parts = start_parts(settings, store, run, bound.connections, kept)
    try:
        parts.start_watches()
        with _stopping_without_threads(stopping):
            asyncio.run(_receive(parts, bound, stopping, echo))
    finally:
        parts.stop_watches()
        _withdraw(settings.store)  # first, so that no command connects to a server that ends
        _drain(parts.spool, parts.loader, stopping, echo)
        store.close()
        parts.alarms.end()
        kept_filters.keep(settings.store, parts.loader.kept())


@contextmanager
def _stopping_without_threads(stopping: StopSignals) -> Iterator[None]:
    """Go on with an orderly stop if the system has no room for a thread that only waits."""
    try:
        yield
    except RuntimeError as error:
        if stopping.deadline is None or NO_THREAD not in str(error):
            raise
        logger.warning(
            "The system has no room for another thread: some senders may get no answer, and send "
            "again. Raise the limit of memory or processes (ulimit -v, ulimit -u, a container's)."
        )


def _open(settings: Settings) -> Store:
    """Open the store for writing.

    Raises:
        StoreError: If it cannot be opened, or another process serves it.
    """
    # A command may read the file just now. Whoever connects to an inherited socket waits meanwhile.
    store = open_when_free(settings.store, HELD_SECONDS, to_serve=True)
    if store.server:
        store.close()
        raise StoreError(
            f"'{settings.store}' is already served by process {store.server.pid} at "
            f"{store.server.http}. Send there, or choose another store with --store."
        )
    return store


def _prepare_memory() -> None:
    share_memory()
    gc.freeze()  # imported modules are never garbage: the collector need not scan them


async def _receive(
    parts: Parts, bound: BoundSockets, stopping: StopSignals, echo: Callable[[str], None]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A signal handler runs in the main thread, where the event loop may be asleep: this call wakes
    # it.
    stopping.then = partial(loop.call_soon_threadsafe, stopped.set)
    settings, store, server = parts.settings, parts.store, parts.server
    receiver = _receiver(parts)
    page = open_page(receiver, settings, store, server) if settings.has_page else None
    sql = _sql_route(receiver, store, server)
    servers = Servers(receiver, settings, bound, [page, sql] if page else [sql])
    if settings.tls:
        reload = partial(_reload, settings.tls, servers, parts.certificates)
        loop.add_signal_handler(signal.SIGHUP, reload)
        if parts.certificates:
            parts.certificates.renew = partial(loop.call_soon_threadsafe, reload)
    parts.supervisor.watch(servers.start())
    try:
        await servers.until_open()
        with servers.reporting_unread():
            _announce(parts, echo)
            # The signal may have come before `then` was set.
            if stopping.deadline is None:
                await _until_stopped(stopped, servers, parts.supervisor)
    except ConnectionError:
        stopping.exit_code = FAILED
        raise
    finally:
        if page:
            page.close()
        # Their threads would keep the process alive, and those over HTTP also the server.
        await asyncio.gather(servers.stop(), _end_statements(store))


async def _end_statements(store: Store) -> None:
    try:
        await asyncio.to_thread(store.sql_server.end_statements)
    except RuntimeError:  # the system has no room for another thread
        store.sql_server.end_statements()


async def _until_stopped(stopped: asyncio.Event, servers: Servers, supervisor: Supervisor) -> None:
    """Wait for the request to stop.

    Raises:
        ConnectionError: If a server or a thread ends earlier. The rest of the process would refuse
            half of the senders, or acknowledge requests that are never stored.
    """
    stop_request = asyncio.create_task(stopped.wait())
    dead_thread = asyncio.create_task(supervisor.until_one_dies())
    tasks = {stop_request, servers.http_task, dead_thread}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    # Without effect if a thread has died: then the task is done.
    dead_thread.cancel()
    if stopped.is_set():
        return
    if dead_thread.done() and not dead_thread.cancelled():
        raise ConnectionError(
            f"the {dead_thread.result()} ended by itself; the log says why. What was acknowledged "
            f"is kept; start lightning-ingest again."
        )
    raise servers.http_ended()


def _receiver(parts: Parts) -> Receiver:
    settings, server, loader = parts.settings, parts.server, parts.loader
    hosts = [address.host for address in settings.addresses]
    # `lightning-ingest load` sends with a second token, from a file that only the store's owner
    # can read.
    tokens = (settings.token, server.token) if settings.token else ()
    return Receiver(
        parts.spool,
        AccessGuard.of(tokens, hosts, settings.allowed_hosts),
        partial(gauges, parts.spool, loader, parts.supervisor),
        settings.max_body,
        alarms=parts.alarms,
        grpc_address=str(settings.grpc) if settings.grpc else None,
        ids_to_read=lambda: loader.ids_to_read,
    )


def _sql_route(receiver: Receiver, store: Store, server: Server) -> SqlRoute:
    reads = store.sql_server.page_reads()

    def ask(select: str, cancellation: Cancellation) -> list[dict[str, Any]]:
        table = reads.ask(select, {}, SELECT_SECONDS, cancellation)
        # As text: Python's datetime has no nanoseconds.
        rows: list[dict[str, Any]] = all_times_as_text(table).to_pylist()
        return rows

    return SqlRoute(receiver, server.token, ask)


def _reload(tls: Tls, servers: Servers, certificates: CertificateWatch | None) -> None:
    try:
        tls.check()
    except ValueError as error:
        logger.error("The certificates stay as they were: %s", error)  # noqa: TRY400  it says all
        return
    servers.reload_certificates()
    if certificates:
        certificates.note_loaded()
    logger.info("The certificates were read again: new connections get them.")


def _announce(parts: Parts, echo: Callable[[str], None]) -> None:
    """Let commands find the process, and tell the user its addresses."""
    settings, server = parts.settings, parts.server
    grpc = str(settings.grpc) if settings.grpc else None
    # Only now, when it answers: with this file, commands find the server.
    parts.heartbeat.announce(settings.store, replace(server, grpc=grpc))
    scheme = "https" if settings.tls else "http"
    grpc_and = f"gRPC at {settings.grpc} and over " if settings.grpc else ""
    echo(
        f"Ready: OTLP over {grpc_and}HTTP at {scheme}://{server.http}, stored in {settings.store}."
    )
    if settings.grpc:
        echo(
            f"Exporters with OTEL_EXPORTER_OTLP_PROTOCOL=grpc send to port {settings.grpc.port}, "
            f"those with http/protobuf or http/json to port {settings.http.port}."
        )
    if settings.has_page:
        command = next_command("lightning-ingest open", settings.store)
        echo(f"Page at {scheme}://{server.http}/ui; to open it: {command}")
    line = attach_line(server.sql, server_file(settings.store))
    echo(f"SQL from any DuckDB 1.5, read-only: {line}")


def _withdraw(store: Path) -> None:
    """Delete the server file; the process has to end also if that fails."""
    try:
        server_file(store).unlink(missing_ok=True)
    except OSError as error:  # such as a file system that has become read-only
        logger.warning("'%s' cannot be deleted (%s): delete it.", server_file(store), reason(error))


def _drain(
    spool: Spool, loader: Loader, stopping: StopSignals, echo: Callable[[str], None]
) -> None:
    """Store the requests on the spool until the deadline; the rest waits for the next start."""
    spool.close()
    loader.stop(stopping.seconds_left())
    backlog = spool.backlog()
    echo(
        f"Stopped; {backlog:,} bytes that were acknowledged wait on the spool for the next start."
        if backlog
        else "Stopped; everything that was acknowledged is stored."
    )
    if loader.is_alive():
        stopping.note_end(sys.exception())
        os._exit(stopping.exit_code)  # the loader's transaction is rolled back, as after a crash
