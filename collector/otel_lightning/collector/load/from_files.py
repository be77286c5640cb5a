"""`lightning-ingest load`: files into a store, through the running ingester if there is one."""

import http.client
import ssl
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from google.rpc.status_pb2 import Status

from otel_lightning.collector.load.batches import Request, load, waiting
from otel_lightning.collector.otlp.files import Contents, read_file
from otel_lightning.collector.receive.accept import PROTOBUF
from otel_lightning.collector.receive.refusals import RETRY_AFTER_SECONDS
from otel_lightning.collector.refresh.refresh import SPANS_AT_ONCE, refresh_with_room
from otel_lightning.collector.store import Server, Store, StoreError
from otel_lightning.collector.store.seen_ids import Known

TIMEOUT_SECONDS = 60


class Loaded(NamedTuple):
    """What became of one file."""

    records: int
    new: int | None
    """Unknown when the running ingester stores them."""


class Client(NamedTuple):
    """The certificate and key with which to introduce oneself, where the ingester asks for one."""

    cert: Path
    key: Path


def load_file(
    store: Store, path: Path, known: Known | None = None, client: Client | None = None
) -> Loaded:
    """Store one file; all of it or nothing.

    Args:
        store: Where to, direct or through the running ingester.
        path: The file.
        known: What a direct store has; whoever loads more than one file keeps it.
        client: For an ingester that asks its clients for a certificate.

    Raises:
        ValueError: If the file is not whole OTLP.
        OSError: If it cannot be read.
        StoreError: If the store or the running ingester does not take it.
    """
    contents = read_file(path)
    records = sum(c.records for c in contents)
    if store.server:
        _send(store.server, contents, client)
        return Loaded(records, None)
    now = time.time_ns()
    requests = [Request(c.signal, now, c.body) for c in contents]
    return Loaded(records, load(store, requests, known, dead_letters=path.parent))


def derive_all(store: Store, path: Path, spans_at_once: int = SPANS_AT_ONCE) -> None:
    """Bring the derived tables up to date, or wait until the running ingester has."""
    if store.server:
        while waiting(store, path) or _stale(store):
            time.sleep(0.1)
    else:
        store.execute("SET threads = 1")  # a second one only spins while Python works
    while not store.server and refresh_with_room(store, spans_at_once):
        pass


def _stale(store: Store) -> int:
    return int(store.query("SELECT count(*) AS n FROM stale")["n"][0].as_py())


def _send(server: Server, contents: Iterable[Contents], client: Client | None) -> None:
    try:
        connection = _connection(server, client)
        for one in contents:
            _post(connection, server, one)
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        hint = ""
        if server.tls_cert and not client:
            hint = " If it asks clients for a certificate, give --client-cert and --client-key."
        raise StoreError(
            f"lightning-ingest at {server.http} does not answer: {error}.{hint}"
        ) from error


def _connection(server: Server, client: Client | None) -> http.client.HTTPConnection:
    if server.tls_cert is None:
        return http.client.HTTPConnection(server.http, timeout=TIMEOUT_SECONDS)
    # The very certificate lies beside us: no authority and no name has to vouch for it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(server.tls_cert)
    if client:
        context.load_cert_chain(client.cert, client.key)
    return http.client.HTTPSConnection(server.http, timeout=TIMEOUT_SECONDS, context=context)


def _post(connection: http.client.HTTPConnection, server: Server, contents: Contents) -> None:
    headers = {"Content-Type": PROTOBUF, "Authorization": f"Bearer {server.token}"}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        connection.request("POST", f"/v1/{contents.signal}", contents.body, headers)
        answer = connection.getresponse()
        reply = answer.read()
        if answer.status == http.client.OK:
            return
        if answer.status != http.client.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
            raise StoreError(
                f"lightning-ingest at {server.http} refused it: {Status.FromString(reply).message}"
            )
        time.sleep(RETRY_AFTER_SECONDS)


def expand(paths: Sequence[Path]) -> list[Path]:
    """Files as given; a folder stands for the files below it."""
    files: list[Path] = []
    for path in paths:
        files += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return files
