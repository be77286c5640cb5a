"""`lightning-ingest load`: load files into a store, through the running ingester if there is one.

DuckDB lets one process write to a file, so a running ingester has to store them.
"""

import http.client
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from google.rpc.status_pb2 import Status

from otel_lightning.collector.ingester_client.http import connected
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.position import wait_until_derived
from otel_lightning.collector.receive.accept import PROTOBUF
from otel_lightning.collector.receive.feedback import as_request, judgement_record
from otel_lightning.collector.receive.refusals import RETRY_AFTER_SECONDS
from otel_lightning.collector.refresh.refresh import REBUILD, SPANS_AT_ONCE, rebuild
from otel_lightning.collector.refresh.refresher import Refresher
from otel_lightning.collector.spool.folder import dead_letters
from otel_lightning.collector.store import Server, Store, StoreError
from otel_lightning.collector.store.answering import Client
from otel_lightning.collector.store.clients.read_only import FUNCTIONS
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds
from otel_lightning.collector.store.sql_text import literal
from otel_lightning.collector.trace_files.otlp_requests import Contents
from otel_lightning.collector.trace_files.read import KEPT_BYTES, read_file
from otel_lightning.collector.trace_files.records import ExportedJudgement

TIMEOUT_SECONDS = 60
IDS_AT_ONCE = RECORDS_AT_ONCE = 1_000
PORTION_BYTES = KEPT_BYTES
"""Bytes of requests that are stored in one transaction. So a file that is kept is stored in one."""


class Loaded(NamedTuple):
    """The number of stored records, how many of them were new, and what is not stored."""

    records: int
    new: int | None
    """None if the running ingester stores them: it does not report the number."""
    judgements: Sequence[ExportedJudgement] = ()
    """Judgements that `load_judgements` stores after the judged spans are stored."""
    left_out: Sequence[str] = ()
    """Why records cannot be stored: one clause for each record."""


def load_file(
    store: Store, path: Path, seen_ids: SeenIds | None = None, client: Client | None = None
) -> Loaded:
    """Store one file, completely or not at all if it is invalid.

    Args:
        store: The store, direct or through the running ingester.
        path: The file.
        seen_ids: Ids in a direct store, to recognise duplicates: the same object for each file.
        client: Client certificate, if the ingester requires one.

    Raises:
        ValueError: If the file does not hold traces, or is not complete.
        OSError: If it cannot be read.
        StoreError: If the store or the running ingester refuses it.
    """
    file = read_file(path)
    new = _store(store, file.requests, seen_ids, client, path.parent)
    return Loaded(file.records, new, file.judgements, file.left_out)


def load_judgements(
    store: Store,
    judgements: Sequence[ExportedJudgement],
    seen_ids: SeenIds | None = None,
    client: Client | None = None,
) -> Loaded:
    """Store the judgements of other trace stores, like those that are sent to `/v1/feedback`.

    Args:
        store: The store, in which the judged spans are.
        judgements: The judgements.
        seen_ids: As for `load_file`.
        client: As for `load_file`.

    Raises:
        StoreError: If the store or the running ingester refuses them.
    """
    traces = _traces_of(store, {j.item["span_id"] for j in judgements if "trace_id" not in j.item})
    records, left_out = [], list[str]()
    # If two judgements have one id, the one that is stored last counts.
    for item, time_ns in sorted(judgements, key=attrgetter("time_ns")):
        trace_id = item.get("trace_id") or traces.get(item["span_id"])
        if trace_id is None:
            left_out.append("a judgement of a span that is not in the store; load its span too")
            continue
        try:
            records.append(judgement_record({**item, "trace_id": trace_id}, time_ns))
        except ValueError as error:
            left_out.append(f"a judgement, because {error}")
    requests = []
    for start in range(0, len(records), RECORDS_AT_ONCE):
        some = records[start : start + RECORDS_AT_ONCE]
        requests.append(Contents("logs", as_request(some).SerializeToString(), len(some)))
    # Nothing is written to the folder: these records can be decoded.
    new = _store(store, requests, seen_ids, client, Path())
    return Loaded(len(records), new, left_out=left_out)


def _traces_of(store: Store, span_ids: set[str]) -> dict[str, str]:
    """Return the trace of each span that is stored once."""
    found: dict[str, str] = {}
    ids = sorted(span_ids)
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = literal(ids[start : start + IDS_AT_ONCE])
        rows = store.rows(
            f"SELECT span_id, min(trace_id) AS trace_id FROM spans WHERE span_id IN {some} "
            "GROUP BY span_id HAVING count(*) = 1"
        )
        found.update((row["span_id"], row["trace_id"]) for row in rows)
    return found


def _store(
    store: Store,
    contents: Iterable[Contents],
    seen_ids: SeenIds | None,
    client: Client | None,
    folder: Path,
) -> int | None:
    """Store requests; return the number of new records, None if the ingester stores them."""
    if store.server:
        _send(store.server, contents, client)
        return None
    now = time.time_ns()
    # `forget` looks there, and not in the folder of the file.
    letters = dead_letters(store.path) if store.path else folder
    seen_ids = seen_ids or SeenIds(store)
    return sum(
        load(store, some, seen_ids, dead_letters=letters)
        for some in _portions(Request(one.signal, now, one.body) for one in contents)
    )


def _portions(requests: Iterable[Request]) -> Iterator[list[Request]]:
    """Divide the requests into parts that fit into memory; each is stored in one transaction."""
    portion, size = list[Request](), 0
    for request in requests:
        if portion and size + len(request.body) > PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(request)
        size += len(request.body)
    if portion:
        yield portion


def start_anew(store: Store) -> None:
    """Empty the derived tables and mark everything as stale; `derive_all` derives it again.

    A running ingester does that itself, between two batches. It keeps large traces in memory, and
    would go on to write only what changes of them.

    Args:
        store: The store, direct or through the running ingester.
    """
    if store.server:
        store.query(f"SELECT {FUNCTIONS}.{REBUILD}('') AS done")
    else:
        rebuild(store)


def derive_all(
    store: Store, path: Path, spans_at_once: int = SPANS_AT_ONCE, workers: int = 1
) -> None:
    """Update the derived tables, or wait until the running ingester has updated them.

    Args:
        store: The store, direct or through the running ingester.
        path: Its file.
        spans_at_once: About how many spans to derive in one batch.
        workers: Processes that derive if there is enough to do; with 0 or 1 this process does.
    """
    if store.server:
        wait_until_derived(store, path)
        return
    store.threads = 1  # a second thread would only spin while Python works
    with closing(Refresher(store, workers)) as refresher:
        spans_at_once = refresher.prepare(spans_at_once)
        while refresher.step(spans_at_once, paced=False).is_busy or refresher.wait():
            pass


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
