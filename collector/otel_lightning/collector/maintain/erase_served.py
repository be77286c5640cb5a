"""`lightning-ingest forget` while the ingester runs: its loader does it, between two batches.

Receiving goes on: what is received meanwhile waits on the spool. SQL clients go on to read. Those
that write wait while the remaining rows are copied to a new file, and all wait for the moment in
which the new file takes the place of the old one.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from otel_lightning.collector.files.overwrite import overwrite
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.maintain.copy_store import unfinished_store
from otel_lightning.collector.maintain.copy_while_stored import (
    FEW_TRACES,
    copy_changed,
    copy_most,
    copy_rest,
)
from otel_lightning.collector.maintain.erase import (
    Erased,
    Selection,
    delete_underived,
    erase,
    erase_rows,
)
from otel_lightning.collector.maintain.unfinished_erasure import UnfinishedErasure
from otel_lightning.collector.refresh.time_ranges.recent_traces import RecentTraces, recent_traces
from otel_lightning.collector.refresh.workers.worker import WorkerDiedError, WorkerError
from otel_lightning.collector.store import (
    BrokenStoreError,
    Store,
    StoreError,
    open_store,
    quote_literal,
    read_server,
)
from otel_lightning.collector.store.clients.read_only import FUNCTIONS
from otel_lightning.collector.store.files.held_file import held, release
from otel_lightning.collector.store.files.replacement import ServedFile
from otel_lightning.collector.terminal.quantities import number_of

FORGET = "lightning_forget"
"""The SQL function that makes the process that serves a store begin to erase traces."""
FORGOTTEN = "lightning_forgotten"
"""The SQL function that tells what was erased."""
WAIT_SECONDS = 1.0
ROUNDS = 5
"""Most rounds that copy what changed meanwhile, before the last one, for which storing waits."""
SILENT_SECONDS = 60.0
"""Longest time without an answer of the ingester, before the command gives up."""
AGAIN_SECONDS = 0.2


def erase_by_path(path: Path, selection: Selection, memory_bytes: int | None = None) -> Erased:
    """Erase traces; if a process serves the store, this process does it.

    Args:
        path: Path of the store.
        selection: The traces to erase.
        memory_bytes: DuckDB's memory limit, if nobody serves the store; None for DuckDB's default.

    Raises:
        StoreError: If there is no store, the selection is not valid, or it cannot be erased.
    """
    selection.check()
    if read_server(path):
        with open_store(path, create=False) as store:
            if store.server:
                return _await(path, store, _call(store, FORGET, json.dumps(asdict(selection))))
    return erase(path, selection, memory_bytes)


def _await(path: Path, store: Store, ticket: str) -> Erased:
    """Ask until the ingester has done it; a call that lasts that long would keep its file in use.

    The ingester may close the sessions of all clients meanwhile: then ask over a new one.
    """
    with ExitStack() as sessions:
        heard = time.monotonic()
        while True:
            try:
                answer = json.loads(_call(store, FORGOTTEN, ticket))
            except StoreError:
                if time.monotonic() - heard > SILENT_SECONDS:
                    raise
                time.sleep(AGAIN_SECONDS)
                with suppress(StoreError):  # the SQL server may not be up again yet
                    store = sessions.enter_context(open_store(path, create=False))
                if store.server is None:
                    raise StoreError(
                        "lightning-ingest ended meanwhile; the store is whole. Run it again."
                    ) from None
                continue
            heard = time.monotonic()
            if "error" in answer:
                raise StoreError(answer["error"])
            if "erased" in answer:
                return Erased(**answer["erased"])


def _call(store: Store, function: str, text: str) -> str:
    rows = store.rows(f"SELECT {FUNCTIONS}.{function}({quote_literal(text)}) AS answer")
    return str(rows[0]["answer"])


class Forgetting:
    """Functions of the serving process for clients: begin to erase traces, and return the result.

    Each is a function of a text that returns a text, for `Store.register_function`.
    """

    def __init__(self, loader: Loader, file: ServedFile) -> None:
        """Erase in the thread of this loader."""
        self._loader, self._file = loader, file
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="forget")
        self._erasures: dict[str, Future[Erased]] = {}

    def begin(self, selection_json: str) -> str:
        """Begin to erase a `Selection`, given as JSON, and return a name for it."""
        selection, ticket = Selection(**json.loads(selection_json)), secrets.token_hex(8)
        self._erasures[ticket] = self._threads.submit(self._erase, selection)
        return ticket

    def end(self, ticket: str) -> str:
        """Wait a moment, and return as JSON what was erased, or the error, or nothing yet."""
        erasure = self._erasures.get(ticket)
        if erasure is None:
            return json.dumps({"error": "lightning-ingest was restarted meanwhile. Run it again."})
        try:
            return json.dumps({"erased": asdict(erasure.result(WAIT_SECONDS))})
        except TimeoutError:
            return "{}"
        except Exception as error:  # noqa: BLE001  the client gets the error
            return json.dumps({"error": str(error)})

    def _erase(self, selection: Selection) -> Erased:
        return erase_served(self._loader, self._file, selection)


def erase_served(loader: Loader, file: ServedFile, selection: Selection) -> Erased:
    """Erase traces in the process that serves the store. Do not call it in the loader's thread.

    The loader deletes the rows between two batches. Then it goes on, while the other rows are
    copied here. Between two later batches the new file takes the place of the old one.

    Args:
        loader: The loader.
        file: The store's file.
        selection: The traces.

    Raises:
        StoreError: If the selection is not valid, or SQL clients keep the file in use.
        BrokenStoreError: If this process cannot go on; the store on disk is whole.
    """
    selection.check()
    was_interrupted = UnfinishedErasure.of(file.path) is not None
    with file.unwritten(), loader.retention.paused():
        erased = loader.run_between_batches(
            lambda store: _delete_rows(loader, store, file, selection)
        )
        unfinished = UnfinishedErasure.of(file.path)
        if unfinished is None:
            return erased
        old = held(file.path)
        recent = loader.run_between_batches(recent_traces)
        with recent.noting_replaced():
            _rewrite(loader, file, recent)
    overwrite(old)
    release(old)
    unfinished.finish(file.path)
    return replace(erased, has_finished=was_interrupted)


def _delete_rows(loader: Loader, store: Store, file: ServedFile, selection: Selection) -> Erased:
    """Delete the rows, and derive again what was tied to them. Call it in the loader's thread."""
    loader.empty_spool()
    loader.derive_all()
    if selection.rollouts or selection.conversations:
        _derive_the_rest(loader, store)
    with _log_overwritten(file.path):
        store.await_checkpoint()
        loader.seen_ids.may_be_kept = False
        erased = erase_rows(store, file.path, selection)
        loader.derive_all()
        if _stale_traces(store):
            delete_underived(store)
    return erased


def _derive_the_rest(loader: Loader, store: Store) -> None:
    """Derive traces on which workers died: only derived rows tell the rollout of most traces.

    Raises:
        StoreError: If they cannot be derived, so that some of the selected traces are not known.
    """
    if not _stale_traces(store):
        return
    reason = "it was tried without success"
    try:
        loader.derive_all(with_quarantined=True)
    except (WorkerDiedError, WorkerError) as error:
        reason = str(error)
    if stale := _stale_traces(store):
        raise StoreError(
            f"Nothing was erased. {number_of(len(stale), 'trace')}, such as {stale[0]}, cannot be "
            f"derived at present ({reason}), so lightning-ingest does not know their rollouts and "
            "conversations. Try again when `lightning-ingest check` names no alarm 'deriving', "
            "or say which traces to forget: --trace or --where."
        )


def _stale_traces(store: Store) -> list[str]:
    return store.column("SELECT DISTINCT id FROM stale WHERE kind = 'trace' ORDER BY id")


def _rewrite(loader: Loader, file: ServedFile, recent: RecentTraces) -> None:
    """Replace the file by a new one with the same rows."""
    with unfinished_store(file.path) as partial:
        open_store(partial).close()  # makes the tables
        with file.beside(partial) as copy:
            with file.copying():
                copy_most(copy, file.name)
            for _ in range(ROUNDS):
                changed = loader.run_between_batches(lambda _store: recent.take_replaced())
                with file.copying():
                    copy_changed(copy, file.name, changed)
                if len(changed) < FEW_TRACES:
                    break
        partial.chmod(file.path.stat().st_mode & 0o777)
        loader.run_between_batches(lambda store: _take_over(store, file, partial, recent))


def _take_over(store: Store, file: ServedFile, partial: Path, recent: RecentTraces) -> None:
    """Copy the last changes, and let the new file take the old one's place."""
    # Stale traces were stored, and perhaps derived in part, since the rows were copied.
    stale = _stale_traces(store)
    with file.beside(partial) as copy:
        copy_changed(copy, file.name, recent.take_replaced() | set(stale))
        copy_rest(copy, file.name)
    try:
        with _log_overwritten(file.path):
            file.replace(partial)
    except BrokenStoreError:
        raise
    except StoreError as error:
        raise StoreError(
            f"{error} The traces are deleted from all tables, but the file still has bytes of "
            f"them. Run the same command again, or stop lightning-ingest before."
        ) from error


@contextmanager
def _log_overwritten(path: Path) -> Iterator[None]:
    """Overwrite DuckDB's log if the block deletes it, as a checkpoint does."""
    log = path.with_name(path.name + ".wal")
    if not log.exists():
        yield
        return
    with log.open("r+b") as file:
        yield
        if not log.exists() or not os.path.samestat(log.stat(), os.fstat(file.fileno())):
            overwrite(file.fileno())
