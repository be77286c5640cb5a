"""`lightning-ingest copy`: copy the received data of a store of any schema into a new store.

It copies spans, logs, and everything that cannot be derived from them: rejected rows, later scores,
runs, policies, and the answers of judges. It also stores the requests on the old store's spool.
All other tables are derived again.
"""

import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from otel_lightning.collector.derive.tables import TABLES as DERIVED_TABLES
from otel_lightning.collector.files.atomic import rename_durably, sync
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.position import stored_until
from otel_lightning.collector.spool.faults import set_aside
from otel_lightning.collector.spool.folder import dead_letters, spool_folder
from otel_lightning.collector.spool.format import (
    SIGNALS,
    Damage,
    Position,
    Record,
    read_segment,
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
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds
from otel_lightning.collector.store.files.replacement import rewritten
from otel_lightning.collector.store.migrate import mark_all_stale
from otel_lightning.collector.store.sql_text import quote_name
from otel_lightning.collector.store.tables import OF_ONE_FILE, REFRESHING, ROLLOUT_ROWS
from otel_lightning.collector.terminal.quantities import number_of

NOT_COPIED = frozenset(
    {
        *DERIVED_TABLES,
        *("transition_rows", "transition_rollouts"),  # made again by the learner
        *(ROLLOUT_ROWS, *REFRESHING, *OF_ONE_FILE),
    }
)
SOURCE = "lightning_source"
"""Name of the attached database that is copied; a user's file may have any other name."""
ROWS_AT_ONCE = 100_000
BYTES_AT_ONCE = 16 * 1024 * 1024
RESOURCE = Sql('to_json(resource)::VARCHAR AS "resource_json"')
"""Stores made before release 0.1.0 may keep the resource as a map."""
EARLY_HEADER, EARLY_CHECKED = struct.Struct("<QIQB"), struct.Struct("<QB")
"""Header of a spool record before release 0.1.0, which lacks the request's number of rows, and the
part of the header that the checksum covers."""


def copy_store(old: Path, new: Path, echo: Callable[[str], None] = lambda _line: None) -> None:
    """Copy the received data of a store into a new one; the old store is only read.

    The new file gets its name when everything is copied, before the first row is derived.

    Args:
        old: A store of any schema that no process holds.
        new: The file to create.
        echo: Called with each line of the progress report.

    Raises:
        StoreError: If the old store does not exist, a process holds it, or the new one exists.
    """
    _check(old, new)
    with partial_store(new) as partial:
        with open_store(partial) as store:
            store.execute(f"ATTACH {quote_literal(str(old))} AS {SOURCE} (READ_ONLY)")
            for table in _tables(store):
                echo(f"{table}: {number_of(copy_table(store, table), 'row')}")
            store.execute(f"DETACH {SOURCE}")
            echo(f"spool: {_copy_spool(store, old, new)}")
            mark_all_stale(store)
        _copy_beside(old, new)


@contextmanager
def partial_store(path: Path) -> Iterator[Path]:
    """Yield a free name for a store's file; it becomes `path` when the block ends without error."""
    with unfinished_store(path) as partial:
        yield partial
        sync(partial)
        rename_durably(partial, path)


@contextmanager
def unfinished_store(path: Path) -> Iterator[Path]:
    """Yield a free name for a store's file; what still has it at the end of the block is removed.

    The name is always the same, so that what a killed process left behind, perhaps gigabytes, is
    removed by the next one.
    """
    partial = rewritten(path)
    remove_file(partial)
    try:
        yield partial
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
    # Raises with a clear message if it is not a DuckDB file.
    with open_file(old, read_only=True) as opened:
        if "spans" not in _names(opened, "tables", database=Sql("current_database()")):
            raise StoreError(
                f"'{old}' is a DuckDB database, but no store of otel-lightning: it has no table "
                "'spans'. Give the file that lightning-ingest wrote."
            )


def _tables(store: Store) -> list[str]:
    """Return the tables to copy: both stores have them, and they cannot be derived."""
    own_tables = _names(store, "tables", database=Sql("current_database()"))
    source_tables = _names(store, "tables", database=SOURCE)
    return [table for table in own_tables if table in source_tables and table not in NOT_COPIED]


def copy_table(store: Store, table: str, source: str = SOURCE) -> int:
    """Copy a table from another attached database, and convert columns of older schemas.

    Args:
        store: The store to copy to.
        table: The table.
        source: Name of the other database.

    Raises:
        StoreError: If not all rows were copied.
    """
    columns = Sql(", ".join(columns_of(store, table, source)))
    old = Sql(f"{quote_name(source)}.main.{quote_name(table)}")
    extent = store.query(statement(__package__, "old_extent", old=old))
    end, count = extent["last"][0].as_py() + 1, int(extent["n"][0].as_py())
    # Row ids of deleted rows stay unused, so a slice may have fewer rows; the sum is checked below.
    for first in range(0, end, ROWS_AT_ONCE):
        store.execute(
            statement(
                __package__,
                "copied_rows",
                table=Sql(quote_name(table)),
                old=old,
                columns=columns,
                first=first,
                last=first + ROWS_AT_ONCE,
            )
        )
    copied = store.count(quote_name(table))
    if copied != count:
        raise StoreError(f"{copied:,} of {number_of(count, 'row')} of '{table}' could be copied.")
    return copied


def columns_of(store: Store, table: str, source: str) -> Iterator[str]:
    """Yield the SELECT expression over the old table for each column of the new table."""
    source_columns = set(_names(store, "columns", database=source, table=table))
    for name in _names(store, "columns", database=Sql("current_database()"), table=table):
        if name == "resource":  # a generated column, computed from resource_json
            continue
        if name in source_columns:
            yield f'"{name}"'
        elif name == "resource_json":
            yield RESOURCE
        # An older store has no column for this attribute yet, so it is taken from the map.
        elif table == "spans" and name in KEYS:
            yield f'attributes[{quote_literal(name)}] AS "{name}"'


def _names(store: Store, query: str, **values: str) -> list[str]:
    return store.column(statement(__package__, query, **values))


def _copy_spool(store: Store, old: Path, new: Path) -> str:
    """Store the requests that wait on the spool of the old store; return what was found."""
    with open_file(old, read_only=True) as opened:
        position = stored_until(opened, spool_folder(old))
    count, damaged = store_waiting(store, spool_folder(old), position, dead_letters(new))
    summary = number_of(
        count - damaged,
        "request that was not stored yet",
        "requests that were not stored yet",
    )
    # The table `rejected` names the files.
    if not damaged:
        return summary
    parts = number_of(damaged, "damaged part that is set aside", "damaged parts that are set aside")
    return f"{summary}, {parts}"


def store_waiting(store: Store, folder: Path, position: Position, aside: Path) -> tuple[int, int]:
    """Store the requests that wait on a spool.

    Args:
        store: The store that gets them, open for writing.
        folder: The spool's folder; nobody writes to it.
        position: Position up to which requests are stored.
        aside: Folder for damaged bytes, and for bodies that cannot be decoded.

    Returns:
        Number of requests and damaged parts, and number of damaged parts.
    """
    seen_ids, count, damaged, size = SeenIds(store), 0, 0, 0
    batch: list[Request] = []
    for request in waiting_requests(folder, position, aside):
        batch.append(request)
        damaged += request.damaged is not None
        count, size = count + 1, size + len(request.body)
        if size >= BYTES_AT_ONCE:
            load(store, batch, seen_ids, dead_letters=aside)
            batch, size = [], 0
    load(store, batch, seen_ids, dead_letters=aside)
    return count, damaged


def waiting_requests(folder: Path, position: Position, aside: Path) -> Iterator[Request]:
    """Yield the requests after a position, in the present record format or that before 0.1.0.

    Args:
        folder: The spool's folder; nobody writes to it.
        position: Position up to which requests are stored.
        aside: Folder for damaged bytes. Each part is copied to a file there, logged, and yielded as
            a request that has the file's path and no body.
    """
    segments = [segment for segment in segments_of(folder) if segment >= position.segment]
    for segment in segments:
        start = Position(segment, position.offset if segment == position.segment else 0)
        # An earlier segment was written to its end; in the last one a crash may have torn a record.
        parts = read_segment(folder, start, may_be_torn=segment == segments[-1])
        first = next(parts, None)
        # A segment in the earlier format has no record that is valid in the present one, because
        # the checksum covers other bytes.
        if not isinstance(first, Record) and (
            early := list(_early_records(segment_path(folder, segment), start.offset))
        ):
            yield from early
            continue
        for one in chain([first] if first else [], parts):
            if isinstance(one, Damage):
                yield Request("traces", time.time_ns(), b"", set_aside(folder, one, aside))
            else:
                yield Request(one.signal, one.received_ns, one.body)


def _early_records(path: Path, offset: int) -> Iterator[Request]:
    data = path.read_bytes()
    while offset + EARLY_HEADER.size <= len(data):
        length, checksum, received_ns, signal = EARLY_HEADER.unpack_from(data, offset)
        body = data[offset + EARLY_HEADER.size : offset + EARLY_HEADER.size + length]
        # The end of what was written completely; nothing behind it was acknowledged.
        if zlib.crc32(body, zlib.crc32(EARLY_CHECKED.pack(received_ns, signal))) != checksum:
            return
        yield Request(SIGNALS[signal], received_ns, body)
        offset += EARLY_HEADER.size + length


def _copy_beside(old: Path, new: Path) -> None:
    """Copy the files beside the store: bodies that no decoder read, and judges' answers."""
    with suppress(FileNotFoundError):
        shutil.copytree(dead_letters(old), dead_letters(new), dirs_exist_ok=True)
    with suppress(FileNotFoundError):
        shutil.copy2(judge_cache(old), judge_cache(new))


def judge_cache(store_path: Path) -> Path:
    """Return the default path of the judges' answers, without `lightning-learn judge --cache`."""
    return store_path.with_name(store_path.name + ".judge")


def remove_file(store_path: Path) -> None:
    """Delete a store's file and its write-ahead log, if they exist."""
    for path in (store_path, store_path.with_name(store_path.name + ".wal")):
        path.unlink(missing_ok=True)
