"""`lightning-ingest backup`: make a consistent copy of a store, even while it is written.

A backup has three parts: the file as of a checkpoint, the spool from the position that the file
records, and the judges' answers. Every request that was acknowledged before the backup began is in
the file or on the spool.
"""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from otel_lightning.collector.files.atomic import (
    PRIVATE_FOLDER,
    rename_durably,
    sync,
    sync_open,
    sync_tree,
)
from otel_lightning.collector.load.position import stored_until
from otel_lightning.collector.maintain.copy_store import judge_cache
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.format import segment_path, segments_of
from otel_lightning.collector.spool.identity import NAME as SPOOL_ID
from otel_lightning.collector.store import Store, StoreError, open_store, quote_literal
from otel_lightning.collector.store.clients.read_only import FUNCTIONS
from otel_lightning.collector.store.files.held_file import held

BACKUP = "lightning_backup"
"""The SQL function that makes the process that serves a store back it up."""
HEADER_BYTES = 3 * 4096
"""DuckDB's file begins with three headers of 4,096 bytes; each checkpoint changes one of them."""
BYTES_AT_ONCE = 1 << 20
ATTEMPTS = 3


def check_target(target: Path) -> None:
    """Refuse a target that exists already, or whose folder does not exist.

    Raises:
        StoreError: If the target is refused.
    """
    if not target.parent.is_dir():
        raise StoreError(f"There is no folder '{target.parent}' for the backup. Make it first.")
    for path in (target, spool_folder(target), judge_cache(target)):
        if path.exists():
            raise StoreError(f"'{path}' exists already. Give the backup a name that is free.")


def back_up_by_path(path: Path, target: Path) -> None:
    """Back up a store; if a process serves it, this process makes the backup.

    Raises:
        StoreError: If there is no store, or the target exists.
    """
    target = target.resolve()
    check_target(target)
    with open_store(path, create=False) as store:
        if store.server:
            store.query(f"SELECT {FUNCTIONS}.{BACKUP}({quote_literal(str(target))}) AS target")
        else:
            back_up(store, path, target)


def back_up(store: Store, path: Path, target: Path) -> None:
    """Copy a store, its spool and the judges' answers. The caller must be the store's only writer.

    Args:
        store: A direct store.
        path: The store's file.
        target: The file to create; its spool and the judges' answers go beside it.

    Raises:
        StoreError: If the target exists, or a running transaction prevents a checkpoint.
        OSError: If the target cannot be written.
    """
    check_target(target)
    partial = target.with_name(f".{target.name}.partial")
    try:
        _copy_file(store, path, partial)
        _copy_spool(store, spool_folder(path), spool_folder(target))
        if judge_cache(path).exists():
            _copy_sqlite(judge_cache(path), judge_cache(target))
        # All at once, since the disk has written most of it by now. The rename below waits for the
        # names of the folder that all three are in.
        if spool_folder(target).exists():
            sync_tree(spool_folder(target))
        if judge_cache(target).exists():
            sync(judge_cache(target))
        rename_durably(partial, target)
    except BaseException:
        shutil.rmtree(spool_folder(target), ignore_errors=True)
        judge_cache(target).unlink(missing_ok=True)
        raise
    finally:
        partial.unlink(missing_ok=True)
    open_store(target, read_only=True).close()  # raises if the copy is damaged


def _copy_file(store: Store, path: Path, target: Path) -> None:
    """Copy the file as of a checkpoint.

    Between checkpoints DuckDB writes only to the write-ahead log and to blocks that the headers do
    not reference. So the copy is consistent if the headers did not change meanwhile. A large commit
    of another process may cause a checkpoint; then the copy is retried.
    """
    source = held(path)
    for _ in range(ATTEMPTS):
        store.await_checkpoint()
        before = _headers(source)
        with _create(target) as copy:
            offset = 0
            while some := os.pread(source, BYTES_AT_ONCE, offset):
                copy.write(some)
                offset += len(some)
            copy.flush()
            sync_open(copy.fileno())
        if _headers(source) == before == _first_bytes(target):
            return
    raise StoreError("The store was changed by others while it was copied. Try again.")


def _headers(file: int) -> bytes:
    return os.pread(file, HEADER_BYTES, 0)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)


def _create(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _copy_spool(store: Store, source: Path, target: Path) -> None:
    """Copy the segments with requests that are not stored yet.

    The last record may be cut, because it was being written: it was not acknowledged yet.
    """
    if not source.exists():
        return
    position = stored_until(store, source)
    target.mkdir(mode=PRIVATE_FOLDER)
    if (source / SPOOL_ID).exists():  # else `load` made the folder, for what it could not store
        shutil.copy2(source / SPOOL_ID, target / SPOOL_ID)
    for segment in segments_of(source):
        if segment >= position.segment:
            shutil.copy2(segment_path(source, segment), segment_path(target, segment))
    for folder in (one for one in source.iterdir() if one.is_dir()):  # bodies that no decoder read
        shutil.copytree(folder, target / folder.name)


def _copy_sqlite(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)
