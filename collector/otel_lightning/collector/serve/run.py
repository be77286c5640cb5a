"""`lightning-ingest serve`: receivers, spool, loader and SQL server in one process."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from granian.server.embed import Server as HttpServer

from otel_lightning.collector.alarms import Alarms, alarms_file
from otel_lightning.collector.last_run import Run
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.maintain.backup import BACKUP, back_up
from otel_lightning.collector.maintain.erase_served import FORGET, FORGOTTEN, Forgetting
from otel_lightning.collector.page.answer import Page
from otel_lightning.collector.process.allocator import share_memory
from otel_lightning.collector.receive.accept import Receiver
from otel_lightning.collector.receive.access import AccessGuard
from otel_lightning.collector.receive.http import server as http_server
from otel_lightning.collector.receive.http.application import application
from otel_lightning.collector.receive.http.sql import SqlRoute
from otel_lightning.collector.receive.tls import Tls
from otel_lightning.collector.serve.gauges import gauges
from otel_lightning.collector.serve.page import open_page
from otel_lightning.collector.serve.settings import Address, Settings
from otel_lightning.collector.serve.stop_signals import StopSignals
from otel_lightning.collector.serve.watches.certificates import CertificateWatch
from otel_lightning.collector.serve.watches.descriptors import (
    IdleConnections,
    connections_within,
    raise_limit,
)
from otel_lightning.collector.serve.watches.heartbeat import Heartbeat
from otel_lightning.collector.serve.watches.supervision import Supervisor
from otel_lightning.collector.serve.watches.wrong_protocol import watched
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

if TYPE_CHECKING:
    from grpc import Server as GrpcServer

    from otel_lightning.collector.receive.grpc import GrpcCertificates

logger = logging.getLogger(__name__)

GRACE_SECONDS = 4  # part of DRAIN_SECONDS for requests in progress
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


class BoundSockets(NamedTuple):
    """Sockets that reserve the addresses until the servers listen, and the connection limit."""

    grpc: socket.socket | None
    http: socket.socket
    connections: int


def _serve(
    settings: Settings, bound: BoundSockets, stopping: "StopSignals", say: Callable[[str], None]
) -> None:
    filters = kept_filters.take(settings.store)
    # Whoever connects to a socket that was inherited waits in its queue meanwhile.
    patience = HELD_SECONDS if settings.http.inherited is not None else 0.0
    store = open_when_free(settings.store, patience, to_serve=True)
    if store.server:
        store.close()
        raise StoreError(
            f"'{settings.store}' is already served by process {store.server.pid} at "
            f"{store.server.http}. Send there, or choose another store with --store."
        )
    stopping.run = run = Run(settings.store)
    erase_spilled(settings.store)
    _prepare_memory()
    server = _server(store, settings)
    spool = Spool(spool_folder(settings.store))
    idle_connections = IdleConnections(_ports(settings, server), bound.connections)
    try:
        alarms = Alarms(alarms_file(settings.store), settings.refuse_after)
        loader = Loader(store.cursor(), spool, settings.loader, alarms)
        loader.seen_ids.restore(filters)
        _tell_of_former(run, spool)
        store.register_function(BACKUP, partial(_back_up, loader, settings.store))
        forgetting = Forgetting(loader, store.served_file())
        store.register_function(FORGET, forgetting.begin)
        store.register_function(FORGOTTEN, forgetting.end)
        certificates = CertificateWatch(settings.tls, alarms) if settings.tls else None
        heartbeat = Heartbeat(run)
        watches = [idle_connections, store.client_watch, certificates, heartbeat]
        supervisor = Supervisor(loader, spool, filter(None, watches), alarms, run)
        idle_connections.start()
        loader.start()  # the last one: from now on it has to be stopped
    except BaseException:
        spool.close()  # its thread would keep the process alive
        raise
    try:
        for thread in (supervisor, heartbeat, certificates):
            if thread:
                thread.start()
        receiver = replace(
            _receiver(settings, spool, loader, supervisor, server),
            alarms=alarms,
            grpc_address=str(settings.grpc) if settings.grpc else None,
        )
        page = open_page(receiver, settings, store, server) if settings.has_page else None
        running = Running(
            partial(_ready, settings, server, heartbeat, say),
            supervisor,
            page,
            _sql_route(receiver, store, server),
            certificates,
        )
        asyncio.run(_receive(receiver, settings, bound, stopping, running))
    finally:
        for watching in (supervisor, heartbeat, idle_connections):
            watching.stop()
        _withdraw(settings.store)  # first, so that no command connects to a server that ends
        _drain(spool, loader, stopping, say)
        store.close()
        alarms.end()
        kept_filters.keep(settings.store, loader.seen_ids.filters)


def _prepare_memory() -> None:
    share_memory()
    gc.freeze()  # imported modules are never garbage: the collector need not scan them


def _tell_of_former(run: Run, spool: Spool) -> None:
    if run.former:
        logger.warning(
            "The last %s. What it acknowledged is kept: %d bytes of the spool are read again.",
            run.former.told,
            spool.backlog(),
        )


def _withdraw(store: Path) -> None:
    """Delete the server file; the process has to end also if that fails."""
    try:
        server_file(store).unlink(missing_ok=True)
    except OSError as error:  # such as a file system that has become read-only
        logger.warning("'%s' cannot be deleted (%s): delete it.", server_file(store), error)


def _ports(settings: Settings, server: Server) -> set[int]:
    return {int(server.sql.rpartition(":")[2]), *(one.port for one in settings.addresses)}


class OverGrpc(NamedTuple):
    """The gRPC server, its certificates, and what watches for other protocols at its port."""

    server: "GrpcServer"
    certificates: "GrpcCertificates | None"
    watched: Callable[[], AbstractContextManager[None]]


class Running(NamedTuple):
    """What to call once the servers accept requests, who watches threads, and further routes."""

    ready: Callable[[], None]
    supervisor: Supervisor
    page: Page | None
    sql: SqlRoute
    certificates: CertificateWatch | None


def _back_up(loader: Loader, path: Path, target: str) -> str:
    """Back up in the loader's thread, between two batches, so that no checkpoint interferes."""

    def work(store: Store) -> str:
        back_up(store, path, Path(target))
        return target

    return loader.run_between_batches(work)


def _over_grpc(receiver: Receiver, settings: Settings) -> "OverGrpc":
    # Only here: gRPC takes 0.05 CPU-seconds to load and to start.
    from otel_lightning.collector.receive import grpc

    assert settings.grpc  # noqa: S101 - the caller asked
    certificates = grpc.GrpcCertificates(settings.tls) if settings.tls else None
    wrong = grpc.WrongProtocol(receiver.counts, settings.grpc.port, settings.http.port)
    return OverGrpc(
        grpc.server(receiver, str(settings.grpc), certificates),
        certificates,
        partial(watched, settings.grpc.port, wrong.found),
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


def _server(store: Store, settings: Settings) -> Server:
    cert = str(settings.tls.cert.resolve()) if settings.tls else None
    server = store.serve(str(settings.http), settings.memory_bytes, settings.readers)
    return replace(server, tls_cert=cert)


def _receiver(
    settings: Settings, spool: Spool, loader: Loader, supervisor: Supervisor, server: Server
) -> Receiver:
    listening = [one.host for one in settings.addresses]
    # `lightning-ingest load` sends with a second token, from a file that only the store's owner
    # can read.
    tokens = (settings.token, server.token) if settings.token else ()
    return Receiver(
        spool,
        AccessGuard.of(tokens, listening, settings.allowed_hosts),
        partial(gauges, spool, loader, supervisor),
        settings.max_body,
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


async def _receive(
    receiver: Receiver,
    settings: Settings,
    bound: BoundSockets,
    stopping: StopSignals,
    running: Running,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A signal handler runs in the main thread, where the event loop may be asleep: this call wakes
    # it.
    stopping.then = partial(loop.call_soon_threadsafe, stopped.set)
    if bound.grpc:
        bound.grpc.close()  # gRPC cannot use an open socket: it binds the address again
    over_grpc = _over_grpc(receiver, settings) if settings.grpc else None
    over_http = http_server.server(
        partial(application, receiver, [one for one in (running.page, running.sql) if one]),
        bound.http,
        settings.tls,
        bound.connections // 2,
    )
    if settings.tls:
        reload = partial(_reload, settings.tls, over_grpc, over_http, running.certificates)
        loop.add_signal_handler(signal.SIGHUP, reload)
    if over_grpc:
        running.supervisor.watch(start_grpc(over_grpc.server))
    serving = asyncio.create_task(over_http.serve())
    try:
        await _until_open(settings.http, serving)
        with over_grpc.watched() if over_grpc else nullcontext():
            running.ready()
            # The signal may have come before `then` was set.
            if stopping.deadline is None:
                await _until_stopped(stopped, serving, running.supervisor)
    except ConnectionError:
        stopping.exit_code = FAILED
        raise
    finally:
        if running.page:
            running.page.close()
        await _stop(over_grpc, over_http, serving)


async def _until_stopped(
    stopped: asyncio.Event,
    over_http: asyncio.Task[None],
    supervisor: Supervisor,
) -> None:
    """Wait for the request to stop.

    Raises:
        ConnectionError: If a server or a thread ends earlier. The rest of the process would refuse
            half of the senders, or acknowledge requests that are never stored.
    """
    asked = asyncio.create_task(stopped.wait())
    died = asyncio.create_task(supervisor.until_one_dies())
    await asyncio.wait({asked, over_http, died}, return_when=asyncio.FIRST_COMPLETED)
    # This has no effect if the task is done, which is asked below.
    died.cancel()
    if stopped.is_set():
        return
    if died.done() and not died.cancelled():
        raise ConnectionError(
            f"the {died.result()} ended by itself; the log says why. What was acknowledged "
            f"is kept; start lightning-ingest again."
        )
    raise _dead(over_http)


def _dead(task: asyncio.Task[None]) -> ConnectionError:
    return ConnectionError(
        f"the HTTP server ended by itself ({task.exception() or 'it gave no reason'}). What was "
        f"acknowledged is kept; start lightning-ingest again."
    )


async def _stop(
    over_grpc: OverGrpc | None, over_http: HttpServer, serving: asyncio.Task[None]
) -> None:
    """Accept no new requests, and wait up to `GRACE_SECONDS` for those in progress."""
    waited: list[Awaitable[object]] = [asyncio.wait([serving], timeout=GRACE_SECONDS)]
    if over_grpc:
        # Limited, because it is never set if the server's thread has died.
        is_over = over_grpc.server.stop(grace=GRACE_SECONDS).wait
        waited.append(asyncio.to_thread(is_over, GRACE_SECONDS + 1))
    over_http.stop()  # type: ignore[no-untyped-call]
    await asyncio.gather(*waited)


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


def _reload(
    tls: Tls,
    over_grpc: OverGrpc | None,
    over_http: HttpServer,
    certificates: CertificateWatch | None,
) -> None:
    try:
        tls.check()
    except ValueError as error:
        logger.error("The certificates stay as they were: %s", error)  # noqa: TRY400  it says all
        return
    if over_grpc and over_grpc.certificates:
        over_grpc.certificates.reload()
    over_http.reload()  # type: ignore[no-untyped-call]
    if certificates:
        certificates.note_loaded()


def _ready(
    settings: Settings, server: Server, heartbeat: Heartbeat, say: Callable[[str], None]
) -> None:
    grpc = str(settings.grpc) if settings.grpc else None
    # Only now, when it answers: with this file, commands find the server.
    heartbeat.announce(settings.store, replace(server, grpc=grpc))
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


async def _until_open(address: Address, serving: asyncio.Task[None]) -> None:
    while not serving.done():
        with suppress(ConnectionError):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return
        await asyncio.sleep(0.02)
    raise _dead(serving)
