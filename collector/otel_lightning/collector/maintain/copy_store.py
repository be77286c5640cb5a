"""`lightning-ingest copy`: move what was received from a store of any schema into a new one.

Copied are spans, logs, and all that cannot be derived from them: what was rejected, later scores,
runs, policies, and the answers of judges. What waits on the old store's spool is stored too.
Everything else is derived again.
"""

import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from otel_lightning.collector.load.batches import Request, load, spool_position
from otel_lightning.collector.spool import spool_folder
from otel_lightning.collector.spool_format import (
    SIGNALS,
    Position,
    scan,
    segment_path,
    segments_of,
)
from otel_lightning.collector.store import (
    Sql,
    Store,
    StoreError,
    open_file,
    open_store,
    quote_literal,
    read_server,
    statement,
)
from otel_lightning.collector.store.attribute_columns import KEYS
from otel_lightning.collector.store.migrate import mark_all_stale
from otel_lightning.collector.store.seen_ids import Known

NOT_COPIED = frozenset({
    "llm_calls", "tool_calls", "agent_runs", "retrievals", "arms", "reward_events", "rollout_tasks",
    "trace_keys", "unread_spans", "stale", "transition_rows", "transition_rollouts",  # derived
    "schema_migrations", "spool_position", "spool_identity",  # of one file
})  # fmt: skip
ROWS_AT_ONCE = 100_000
BYTES_AT_ONCE = 16 * 1024 * 1024
RESOURCE = Sql('to_json(resource)::VARCHAR AS "resource_json"')
"""Stores made before release 0.1.0 may keep the resource as a map."""
EARLY_HEADER, EARLY_CHECKED = struct.Struct("<QIQB"), struct.Struct("<QB")
"""Of a spool record made before release 0.1.0: it does not say how many rows the request makes."""


def copy_store(old: Path, new: Path, say: Callable[[str], None] = lambda _line: None) -> None:
    """Make a new store of what another one received; the old one is only read.

    The new file appears under its name when all is copied, before it is derived.

    Args:
        old: A store of any schema that no process holds.
        new: The file to make.
        say: Told what was copied, line by line.

    Raises:
        StoreError: If there is no old store, a process holds it, or the new one exists.
    """
    _check(old, new)
    partial = new.with_name(f".{new.name}.partial")
    remove_file(partial)
    try:
        with open_store(partial) as store:
            store.execute(f"ATTACH {quote_literal(str(old))} AS old (READ_ONLY)")
            for table in _tables(store):
                say(f"{table}: {copy_table(store, table):,} rows")
            store.execute("DETACH old")
            say(f"spool: {_copy_spool(store, old, new):,} requests that were not stored yet")
            mark_all_stale(store)
        _copy_beside(old, new)
        partial.rename(new)
    finally:
        remove_file(partial)


def _check(old: Path, new: Path) -> None:
    if not old.exists():
        raise StoreError(f"There is no store at '{old}'.")
    if server := read_server(old):
        raise StoreError(
            f"'{old}' is served by process {server.pid}. Stop it first, so that it stores what it "
            f"received; then copy."
        )
    for path in (new, spool_folder(new)):
        if path.exists():
            raise StoreError(f"'{path}' exists already. Give the copy a name that is free.")
    open_file(old, read_only=True).close()  # says in plain words if it is no store


def _tables(store: Store) -> list[str]:
    """The tables that both stores have and that are copied."""
    ours = _names(store, "tables", database=Sql("current_database()"))
    theirs = _names(store, "tables", database="old")
    return [table for table in ours if table in theirs and table not in NOT_COPIED]


def copy_table(store: Store, table: str) -> int:
    """Copy a table from the attached database `old`, converted where it was another one.

    Raises:
        StoreError: If not all of its rows could be copied.
    """
    columns = Sql(", ".join(_columns(store, table)))
    last = store.query(f"SELECT coalesce(max(rowid), -1) AS n, count(*) AS all FROM old.{table}")
    end, count = last["n"][0].as_py() + 1, int(last["all"][0].as_py())
    for first in range(0, end, ROWS_AT_ONCE):
        store.execute(
            statement(
                __package__,
                "copied_rows",
                table=Sql(table),
                columns=columns,
                first=first,
                last=first + ROWS_AT_ONCE,
            )
        )
    copied = int(store.query(f"SELECT count(*) AS n FROM {table}")["n"][0].as_py())
    if copied != count:
        raise StoreError(f"{copied:,} of {count:,} rows of '{table}' could be copied.")
    return copied


def _columns(store: Store, table: str) -> Iterator[str]:
    """Yield what to select from the old table for each column of the new one."""
    theirs = set(_names(store, "columns", database="old", table=table))
    for name in _names(store, "columns", database=Sql("current_database()"), table=table):
        if name == "resource":  # made from resource_json
            continue
        if name in theirs:
            yield f'"{name}"'
        elif name == "resource_json":
            yield RESOURCE
        elif table == "spans" and name in KEYS:
            yield f'attributes[{quote_literal(name)}] AS "{name}"'


def _names(store: Store, query: str, **values: str) -> list[str]:
    rows = store.query(statement(__package__, query, **values))
    return [str(name) for name in rows["name"].to_pylist()]


def _copy_spool(store: Store, old: Path, new: Path) -> int:
    """Store what waits on the spool of the old store."""
    with open_file(old, read_only=True) as opened:
        position = spool_position(opened)
    known, count, size = Known(store), 0, 0
    dead_letters = spool_folder(new) / "dead"
    batch: list[Request] = []
    for request in waiting_requests(spool_folder(old), position):
        batch.append(request)
        count, size = count + 1, size + len(request.body)
        if size >= BYTES_AT_ONCE:
            load(store, batch, known, dead_letters=dead_letters)
            batch, size = [], 0
    load(store, batch, known, dead_letters=dead_letters)
    return count


def waiting_requests(folder: Path, position: Position) -> Iterator[Request]:
    """Yield the requests behind a position, in the present form or the one before 0.1.0."""
    for segment in segments_of(folder):
        if segment < position.segment:
            continue
        start = Position(segment, position.offset if segment == position.segment else 0)
        records = scan(folder, start)
        first = next(records, None)
        if first is None:
            yield from _early_records(segment_path(folder, segment), start.offset)
        else:
            for record in chain([first], records):
                yield Request(record.signal, record.received_ns, record.body)


def _early_records(path: Path, offset: int) -> Iterator[Request]:
    data = path.read_bytes()
    while offset + EARLY_HEADER.size <= len(data):
        length, checksum, received_ns, signal = EARLY_HEADER.unpack_from(data, offset)
        body = data[offset + EARLY_HEADER.size : offset + EARLY_HEADER.size + length]
        if zlib.crc32(body, zlib.crc32(EARLY_CHECKED.pack(received_ns, signal))) != checksum:
            return
        yield Request(SIGNALS[signal], received_ns, body)
        offset += EARLY_HEADER.size + length


def _copy_beside(old: Path, new: Path) -> None:
    """Copy what lies in files beside the store: bodies set aside, and judges' answers."""
    with suppress(FileNotFoundError):
        shutil.copytree(spool_folder(old) / "dead", spool_folder(new) / "dead", dirs_exist_ok=True)
    with suppress(FileNotFoundError):
        shutil.copy2(judge_cache(old), judge_cache(new))


def judge_cache(store_path: Path) -> Path:
    """Where judges' answers are kept unless `lightning-learn judge --cache` says otherwise."""
    return store_path.with_name(store_path.name + ".judge")


def remove_file(store_path: Path) -> None:
    """Remove a store's file and its log, if they exist."""
    for path in (store_path, store_path.with_name(store_path.name + ".wal")):
        path.unlink(missing_ok=True)
