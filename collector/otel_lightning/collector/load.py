"""`lightning-ingest load`: files into a store, through the running ingester if there is one."""

import http.client
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.files import Contents, read_file
from otel_lightning.collector.loader import Request, load, waiting
from otel_lightning.collector.receive.answers import PROTOBUF
from otel_lightning.collector.refresh import SPANS_AT_ONCE, refresh
from otel_lightning.collector.store import Server, Store, StoreError

TIMEOUT_SECONDS = 60


class Loaded(NamedTuple):
    """What became of one file."""

    records: int
    new: int | None
    """Unknown when the running ingester stores them."""


def load_file(store: Store, path: Path) -> Loaded:
    """Store one file; all of it or nothing.

    Raises:
        ValueError: If the file is not whole OTLP.
        OSError: If it cannot be read.
        StoreError: If the store or the running ingester does not take it.
    """
    contents = read_file(path)
    records = sum(c.records for c in contents)
    if store.server:
        _send(store.server, contents)
        return Loaded(records, None)
    now = time.time_ns()
    requests = [Request(c.signal, now, c.body) for c in contents]
    return Loaded(records, load(store, requests, dead_letters=path.parent))


def derive_all(store: Store, path: Path, spans_at_once: int = SPANS_AT_ONCE) -> None:
    """Bring the derived tables up to date, or wait until the running ingester has."""
    if store.server:
        while waiting(store, path) or _stale(store):
            time.sleep(0.1)
    while not store.server and refresh(store, spans_at_once):
        pass


def _stale(store: Store) -> int:
    return int(store.query("SELECT count(*) AS n FROM stale")["n"][0].as_py())


def _send(server: Server, contents: Iterable[Contents]) -> None:
    headers = {"Content-Type": PROTOBUF, "Authorization": f"Bearer {server.token}"}
    connection = http.client.HTTPConnection(server.http, timeout=TIMEOUT_SECONDS)
    try:
        for signal, body, _ in contents:
            connection.request("POST", f"/v1/{signal}", body, headers)
            answer = connection.getresponse()
            reply = answer.read()
            if answer.status != http.client.OK:
                raise StoreError(f"lightning-ingest at {server.http} refused it: {reply!r}")
    except (OSError, http.client.HTTPException) as error:
        raise StoreError(
            f"lightning-ingest at {server.http} does not answer in plain HTTP: {error}. "
            f"If it serves TLS, stop it while files are loaded."
        ) from error
    finally:
        connection.close()


def expand(paths: Sequence[Path]) -> list[Path]:
    """Files as given; a folder stands for the files below it."""
    files: list[Path] = []
    for path in paths:
        files += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return files
