"""`lightning-ingest load`: load files into a store, through the running ingester if there is one.

DuckDB lets one process write to a file, so a running ingester has to store them.
"""

import http.client
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from google.rpc.status_pb2 import Status

from otel_lightning.collector.ingester_client.http import Client, connected
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.position import wait_until_derived
from otel_lightning.collector.otlp.files import Contents, read_file
from otel_lightning.collector.receive.accept import PROTOBUF
from otel_lightning.collector.receive.refusals import RETRY_AFTER_SECONDS
from otel_lightning.collector.refresh.refresh import SPANS_AT_ONCE
from otel_lightning.collector.refresh.refresher import Refresher
from otel_lightning.collector.spool.folder import dead_letters
from otel_lightning.collector.store import Server, Store, StoreError
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

TIMEOUT_SECONDS = 60


class Loaded(NamedTuple):
    """The number of records in one file, and how many of them were new."""

    records: int
    new: int | None
    """None if the running ingester stores them: it does not report the number."""


def load_file(
    store: Store, path: Path, known: SeenIds | None = None, client: Client | None = None
) -> Loaded:
    """Store one file, completely or not at all.

    Args:
        store: The store, direct or through the running ingester.
        path: The file.
        known: Ids in a direct store, to recognise duplicates; pass the same object for each file.
        client: Client certificate, if the ingester requires one.

    Raises:
        ValueError: If the file is not complete OTLP.
        OSError: If it cannot be read.
        StoreError: If the store or the running ingester refuses it.
    """
    contents = read_file(path)
    records = sum(c.records for c in contents)
    if store.server:
        _send(store.server, contents, client)
        return Loaded(records, None)
    now = time.time_ns()
    requests = [Request(c.signal, now, c.body) for c in contents]
    # `forget` looks there, and not beside the file.
    letters = dead_letters(store.path) if store.path else path.parent
    return Loaded(records, load(store, requests, known, dead_letters=letters))


def derive_all(
    store: Store, path: Path, spans_at_once: int = SPANS_AT_ONCE, workers: int = 1
) -> None:
    """Update the derived tables, or wait until the running ingester has updated them.

    Args:
        store: The store, direct or through the running ingester.
        path: Its file.
        spans_at_once: About how many spans to derive in one batch.
        workers: Processes that derive; with 0 or 1 this process does.
    """
    if store.server:
        wait_until_derived(store, path)
        return
    store.execute("SET threads = 1")  # a second thread would only spin while Python works
    refresher = Refresher(store, workers)
    try:
        while refresher.step(spans_at_once, paced=False).is_busy or refresher.wait():
            pass
    finally:
        refresher.close()


def _send(server: Server, contents: Iterable[Contents], client: Client | None) -> None:
    with connected(server, client, TIMEOUT_SECONDS) as connection:
        for one in contents:
            _post(connection, server, one)


def _post(connection: http.client.HTTPConnection, server: Server, contents: Contents) -> None:
    headers = {"Content-Type": PROTOBUF, "Authorization": f"Bearer {server.token}"}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        connection.request("POST", f"/v1/{contents.signal}", contents.body, headers)
        answer = connection.getresponse()
        reply = answer.read()
        if answer.status == http.client.OK:
            return
        # 503 asks to send again later: the ingester slows its senders. Any other status would be
        # the answer to every attempt.
        if answer.status != http.client.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
            raise StoreError(
                f"lightning-ingest at {server.http} refused it: {Status.FromString(reply).message}"
            )
        time.sleep(RETRY_AFTER_SECONDS)


def expand(paths: Sequence[Path]) -> list[Path]:
    """Return the files in order, each folder replaced by all files below it."""
    files: list[Path] = []
    for path in paths:
        files += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return files
