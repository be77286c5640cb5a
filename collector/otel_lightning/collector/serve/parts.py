"""The parts of the serving process: store, spool, loader, alarms and the threads that watch."""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from otel_lightning.collector.alarms import Alarms, alarms_file
from otel_lightning.collector.last_run import Run
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.maintain.backup import BACKUP, back_up
from otel_lightning.collector.maintain.erase_served import FORGET, FORGOTTEN, Forgetting
from otel_lightning.collector.refresh.refresh import REBUILD, rebuild
from otel_lightning.collector.refresh.stale import mark_underived
from otel_lightning.collector.serve.settings import Settings
from otel_lightning.collector.serve.watches.certificates import CertificateWatch
from otel_lightning.collector.serve.watches.descriptors import IdleConnections
from otel_lightning.collector.serve.watches.heartbeat import Heartbeat
from otel_lightning.collector.serve.watches.store_link import LinkWatch
from otel_lightning.collector.serve.watches.supervision import Supervisor
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Server, Store
from otel_lightning.collector.store.deduplication.kept_filters import Kept

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """The parts of the process, except for the servers."""

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
    link: LinkWatch | None
    supervisor: Supervisor

    def start_watches(self) -> None:
        """Start the threads that watch the process; `start_parts` has started the others."""
        for thread in (self.supervisor, self.heartbeat, self.certificates, self.link):
            if thread:
                thread.start()

    def stop_watches(self) -> None:
        """Stop the watches that act on other parts."""
        for watch in (self.supervisor, self.heartbeat, self.idle_connections):
            watch.stop()


def start_parts(
    settings: Settings, store: Store, run: Run, most_connections: int, kept: Kept
) -> Parts:
    """Create the parts of the process, and start the loader.

    Args:
        settings: Addresses, limits and the settings of the loader.
        store: The store, open for writing.
        run: The notes on how the runs before ended, and this one.
        most_connections: Highest number of open connections.
        kept: Facts about the stored rows that the run before passed on.
    """
    server = _server(store, settings)
    spool = Spool(spool_folder(settings.store))
    try:
        alarms = Alarms(alarms_file(settings.store), settings.refuse_after)
        loader = Loader(store.cursor(), spool, settings.loader, alarms)
        loader.restore(kept)
        _log_previous_end(run, spool)
        if settings.loader.derive and (count := mark_underived(store)):
            logger.info(
                "%d of the newest traces have no derived rows, so they are read again: they hold "
                "no model or tool calls, or a kill came before they were derived.",
                count,
            )
        _register_functions(store, loader, settings.store)
        idle_connections = IdleConnections(_ports(settings, server), most_connections)
        certificates = CertificateWatch(settings.tls, alarms) if settings.tls else None
        heartbeat = Heartbeat(run)
        link = LinkWatch(settings.link, settings.store, alarms) if settings.link else None
        watches = [idle_connections, store.sql_server.client_watch, certificates, heartbeat, link]
        supervisor = Supervisor(loader, spool, filter(None, watches), alarms, run)
        idle_connections.start()
        loader.start()  # the last one: from now on it has to be stopped
    except BaseException:
        spool.close()  # its thread would keep the process alive
        raise
    return Parts(
        settings=settings,
        store=store,
        server=server,
        spool=spool,
        loader=loader,
        alarms=alarms,
        heartbeat=heartbeat,
        idle_connections=idle_connections,
        certificates=certificates,
        link=link,
        supervisor=supervisor,
    )


def _server(store: Store, settings: Settings) -> Server:
    cert = str(settings.tls.cert.resolve()) if settings.tls else None
    server = store.serve(str(settings.http), settings.memory_bytes, settings.readers)
    return replace(server, tls_cert=cert)


def _ports(settings: Settings, server: Server) -> set[int]:
    return {int(server.sql.rpartition(":")[2]), *(address.port for address in settings.addresses)}


def _log_previous_end(run: Run, spool: Spool) -> None:
    if run.previous_end:
        logger.warning(
            "The last %s. What it acknowledged is kept: %d bytes of the spool are read again.",
            run.previous_end.sentence,
            spool.backlog(),
        )


def _register_functions(store: Store, loader: Loader, path: Path) -> None:
    """Let commands back up the store, erase traces and derive again in this process, by SQL."""
    store.register_function(BACKUP, partial(_back_up, loader, path))
    store.register_function(REBUILD, partial(_rebuild, loader))
    forgetting = Forgetting(loader, store.served_file())
    store.register_function(FORGET, forgetting.begin)
    store.register_function(FORGOTTEN, forgetting.end)


def _back_up(loader: Loader, path: Path, target: str) -> str:
    """Back up in the loader's thread, between two batches, so that no checkpoint interferes."""

    def work(store: Store) -> str:
        back_up(store, path, Path(target))
        return target

    return loader.run_between_batches(work)


def _rebuild(loader: Loader, _text: str) -> str:
    loader.run_between_batches(rebuild)
    return REBUILD
