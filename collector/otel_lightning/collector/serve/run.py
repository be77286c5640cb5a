"""`lightning-ingest serve`: receivers, spool, loader and SQL server in one process."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from otel_lightning.collector.alarms import Alarms, alarms_file
from otel_lightning.collector.last_run import Run
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.maintain.backup import BACKUP, back_up
from otel_lightning.collector.maintain.erase_served import FORGET, FORGOTTEN, Forgetting
from otel_lightning.collector.process.allocator import share_memory
from otel_lightning.collector.receive.accept import Receiver
from otel_lightning.collector.receive.access import AccessGuard
from otel_lightning.collector.receive.http.sql import SqlRoute
from otel_lightning.collector.receive.tls import Tls
from otel_lightning.collector.serve.gauges import gauges
from otel_lightning.collector.serve.page import open_page
from otel_lightning.collector.serve.servers import BoundSockets, Servers
from otel_lightning.collector.serve.settings import Settings
from otel_lightning.collector.serve.stop_signals import StopSignals
from otel_lightning.collector.serve.watches.certificates import CertificateWatch
from otel_lightning.collector.serve.watches.descriptors import (
    IdleConnections,
    connections_within,
    raise_limit,
)
from otel_lightning.collector.serve.watches.heartbeat import Heartbeat
from otel_lightning.collector.serve.watches.supervision import Supervisor
from otel_lightning.collector.spool.folder import spool_folder
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

logger = logging.getLogger(__name__)

HELD_SECONDS = 8.0  # for another process to close the store; exporters give up after 10
SELECT_SECONDS = 120.0  # for a SELECT over HTTP
FAILED = 1


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Receive until SIGTERM or SIGINT, then store the received requests and return.

    Args:
        settings: Checked settings.
        say: Shows the user a line of text.

    Raises:
        StoreError: If the store cannot be opened for writing.
        OSError: If an address cannot be bound, or a server stops without being asked.
    """
    # First of all: a signal that comes during the start ends in an orderly stop, too.
    stopping = StopSignals()
    most = connections_within(raise_limit())
    with ExitStack() as sockets:
        for_grpc = sockets.enter_context(settings.grpc.bind()) if settings.grpc else None
        for_http = sockets.enter_context(settings.http.bind())
        grpc_at = settings.grpc.of(for_grpc) if settings.grpc and for_grpc else None
        settings = replace(settings, grpc=grpc_at, http=settings.http.of(for_http))
        try:
            _serve(settings, BoundSockets(for_grpc, for_http, most), stopping, say)
        except BaseException as error:
            stopping.note_end(error)
            raise
        stopping.note_end()


@dataclass(frozen=True)
class Running:
    """The parts of the process; all of them run, except for the servers."""

    settings: Settings
    store: Store
    server: Server
    """The content of the server file, by which commands find the process."""
    spool: Spool
    loader: Loader
    alarms: Alarms
    heartbeat: Heartbeat
    idle_connections: IdleConnections
    certificates: CertificateWatch | None
    supervisor: Supervisor


def _serve(
    settings: Settings, bound: BoundSockets, stopping: StopSignals, say: Callable[[str], None]
) -> None:
    filters = kept_filters.take(settings.store)
    store = _open(settings)
    stopping.run = run = Run(settings.store)
    erase_spilled(settings.store)
    _prepare_memory()
    running = _start(settings, store, run, bound.connections, filters)
    try:
        for thread in (running.supervisor, running.heartbeat, running.certificates):
            if thread:
                thread.start()
        asyncio.run(_receive(running, bound, stopping, say))
    finally:
        for watching in (running.supervisor, running.heartbeat, running.idle_connections):
            watching.stop()
        _withdraw(settings.store)  # first, so that no command connects to a server that ends
        _drain(running.spool, running.loader, stopping, say)
        store.close()
        running.alarms.end()
        kept_filters.keep(settings.store, running.loader.seen_ids.filters)


def _open(settings: Settings) -> Store:
    """Open the store for writing.

    Raises:
        StoreError: If it cannot be opened, or another process serves it.
    """
    # Whoever connects to a socket that was inherited waits in its queue meanwhile.
    patience = HELD_SECONDS if settings.http.inherited is not None else 0.0
    store = open_when_free(settings.store, patience, to_serve=True)
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


def _start(
    settings: Settings, store: Store, run: Run, most_connections: int, filters: kept_filters.Filters
) -> Running:
    """Create the parts of the process, and start the loader.

    Args:
        settings: Addresses, limits and the settings of the loader.
        store: The store, open for writing.
        run: The notes on how the runs before ended, and this one.
        most_connections: Highest number of open connections.
        filters: The filters of stored ids that the run before has kept.
    """
    server = _server(store, settings)
    spool = Spool(spool_folder(settings.store))
    try:
        alarms = Alarms(alarms_file(settings.store), settings.refuse_after)
        loader = Loader(store.cursor(), spool, settings.loader, alarms)
        loader.seen_ids.restore(filters)
        _tell_of_run_before(run, spool)
        _register_functions(store, loader, settings.store)
        idle_connections = IdleConnections(_ports(settings, server), most_connections)
        certificates = CertificateWatch(settings.tls, alarms) if settings.tls else None
        heartbeat = Heartbeat(run)
        watches = [idle_connections, store.client_watch, certificates, heartbeat]
        supervisor = Supervisor(loader, spool, filter(None, watches), alarms, run)
        idle_connections.start()
        loader.start()  # the last one: from now on it has to be stopped
    except BaseException:
        spool.close()  # its thread would keep the process alive
        raise
    return Running(
        settings=settings,
        store=store,
        server=server,
        spool=spool,
        loader=loader,
        alarms=alarms,
        heartbeat=heartbeat,
        idle_connections=idle_connections,
        certificates=certificates,
        supervisor=supervisor,
    )


def _server(store: Store, settings: Settings) -> Server:
    cert = str(settings.tls.cert.resolve()) if settings.tls else None
    server = store.serve(str(settings.http), settings.memory_bytes, settings.readers)
    return replace(server, tls_cert=cert)


def _ports(settings: Settings, server: Server) -> set[int]:
    return {int(server.sql.rpartition(":")[2]), *(one.port for one in settings.addresses)}


def _tell_of_run_before(run: Run, spool: Spool) -> None:
    if run.former:
        logger.warning(
            "The last %s. What it acknowledged is kept: %d bytes of the spool are read again.",
            run.former.told,
            spool.backlog(),
        )


def _register_functions(store: Store, loader: Loader, path: Path) -> None:
    """Let commands back up the store and erase traces in this process, by SQL."""
    store.register_function(BACKUP, partial(_back_up, loader, path))
    forgetting = Forgetting(loader, store.served_file())
    store.register_function(FORGET, forgetting.begin)
    store.register_function(FORGOTTEN, forgetting.end)


def _back_up(loader: Loader, path: Path, target: str) -> str:
    """Back up in the loader's thread, between two batches, so that no checkpoint interferes."""

    def work(store: Store) -> str:
        back_up(store, path, Path(target))
        return target

    return loader.run_between_batches(work)


async def _receive(
    running: Running, bound: BoundSockets, stopping: StopSignals, say: Callable[[str], None]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A signal handler runs in the main thread, where the event loop may be asleep: this call wakes
    # it.
    stopping.then = partial(loop.call_soon_threadsafe, stopped.set)
    settings, store, server = running.settings, running.store, running.server
    receiver = _receiver(running)
    page = open_page(receiver, settings, store, server) if settings.has_page else None
    sql = _sql_route(receiver, store, server)
    servers = Servers(receiver, settings, bound, [page, sql] if page else [sql])
    if settings.tls:
        reload = partial(_reload, settings.tls, servers, running.certificates)
        loop.add_signal_handler(signal.SIGHUP, reload)
    running.supervisor.watch(servers.start())
    try:
        await servers.until_open()
        with servers.reporting_wrong_protocols():
            _announce(running, say)
            # The signal may have come before `then` was set.
            if stopping.deadline is None:
                await _until_stopped(stopped, servers, running.supervisor)
    except ConnectionError:
        stopping.exit_code = FAILED
        raise
    finally:
        if page:
            page.close()
        # Their threads would keep the process alive, and those over HTTP also the server.
        await asyncio.gather(servers.stop(), asyncio.to_thread(store.end_statements))


async def _until_stopped(stopped: asyncio.Event, servers: Servers, supervisor: Supervisor) -> None:
    """Wait for the request to stop.

    Raises:
        ConnectionError: If a server or a thread ends earlier. The rest of the process would refuse
            half of the senders, or acknowledge requests that are never stored.
    """
    asked = asyncio.create_task(stopped.wait())
    died = asyncio.create_task(supervisor.until_one_dies())
    await asyncio.wait({asked, servers.over_http, died}, return_when=asyncio.FIRST_COMPLETED)
    # This has no effect if the task is done, which is asked below.
    died.cancel()
    if stopped.is_set():
        return
    if died.done() and not died.cancelled():
        raise ConnectionError(
            f"the {died.result()} ended by itself; the log says why. What was acknowledged "
            f"is kept; start lightning-ingest again."
        )
    raise servers.http_ended()


def _receiver(running: Running) -> Receiver:
    settings, server, loader = running.settings, running.server, running.loader
    listening = [one.host for one in settings.addresses]
    # `lightning-ingest load` sends with a second token, from a file that only the store's owner
    # can read.
    tokens = (settings.token, server.token) if settings.token else ()
    return Receiver(
        running.spool,
        AccessGuard.of(tokens, listening, settings.allowed_hosts),
        partial(gauges, running.spool, loader, running.supervisor),
        settings.max_body,
        alarms=running.alarms,
        grpc_address=str(settings.grpc) if settings.grpc else None,
        ids_to_read=lambda: loader.ids_to_read,
    )


def _sql_route(receiver: Receiver, store: Store, server: Server) -> SqlRoute:
    reads = store.page_reads()

    def ask(select: str, cancellation: Cancellation) -> list[dict[str, Any]]:
        found = reads.ask(select, {}, SELECT_SECONDS, cancellation)
        # As text: Python's datetime has no nanoseconds.
        rows: list[dict[str, Any]] = all_times_as_text(found).to_pylist()
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


def _announce(running: Running, say: Callable[[str], None]) -> None:
    """Let commands find the process, and tell the user its addresses."""
    settings, server = running.settings, running.server
    grpc = str(settings.grpc) if settings.grpc else None
    # Only now, when it answers: with this file, commands find the server.
    running.heartbeat.announce(settings.store, replace(server, grpc=grpc))
    scheme = "https" if settings.tls else "http"
    over_grpc = f"gRPC at {settings.grpc} and over " if settings.grpc else ""
    say(
        f"Ready: OTLP over {over_grpc}HTTP at {scheme}://{server.http}, stored in {settings.store}."
    )
    if settings.grpc:
        say(
            f"Exporters with OTEL_EXPORTER_OTLP_PROTOCOL=grpc send to port {settings.grpc.port}, "
            f"those with http/protobuf or http/json to port {settings.http.port}."
        )
    if settings.has_page:
        say(f"Page at {scheme}://{server.http}/ui: open it with `lightning-ingest open`.")
    line = attach_line(server.sql, server_file(settings.store))
    say(f"SQL from any DuckDB 1.5, read-only: {line}")


def _withdraw(store: Path) -> None:
    """Delete the server file; the process has to end also if that fails."""
    try:
        server_file(store).unlink(missing_ok=True)
    except OSError as error:  # such as a file system that has become read-only
        logger.warning("'%s' cannot be deleted (%s): delete it.", server_file(store), error)


def _drain(spool: Spool, loader: Loader, stopping: StopSignals, say: Callable[[str], None]) -> None:
    """Store the requests on the spool until the deadline; the rest waits for the next start."""
    spool.close()
    # In a thread, because `loader.stop` has no deadline of its own.
    rest = threading.Thread(target=loader.stop, name="drain", daemon=True)
    rest.start()
    rest.join(stopping.seconds_left())
    left = spool.backlog()
    say(
        f"Stopped; {left:,} bytes that were acknowledged wait on the spool for the next start."
        if left
        else "Stopped; everything that was acknowledged is stored."
    )
    if rest.is_alive():
        stopping.note_end(sys.exception())
        os._exit(stopping.exit_code)  # the loader's transaction is rolled back, as after a crash
