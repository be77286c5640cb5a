"""`lightning-ingest backup`: a copy of a store that is whole, also while it is written.

The copy is made of three parts: the file as of a checkpoint, the spool from the position on that
the file names, and judges' answers. What is acknowledged before the backup begins is in the file or
in the spool.
"""

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from otel_lightning.collector.load.batches import spool_position
from otel_lightning.collector.maintain.copy_store import judge_cache
from otel_lightning.collector.spool import spool_folder
from otel_lightning.collector.spool_format import segment_path, segments_of
from otel_lightning.collector.spool_identity import NAME as SPOOL_ID
from otel_lightning.collector.store import Store, StoreError, open_store, quote_literal

BACKUP = "lightning_backup"
"""The SQL function with which a process that serves a store is asked to back it up."""
HEADER_BYTES = 3 * 4096
"""DuckDB's file begins with three headers; each checkpoint changes one of them."""
CHECKPOINT_SECONDS = 30.0
ATTEMPTS = 3
PRIVATE_FOLDER = 0o700


def check_target(target: Path) -> None:
    """Refuse a target that is there already, or whose folder is not.

    Raises:
        StoreError: If so.
    """
    if not target.parent.is_dir():
        raise StoreError(f"There is no folder '{target.parent}' for the backup. Make it first.")
    for path in (target, spool_folder(target), judge_cache(target)):
        if path.exists():
            raise StoreError(f"'{path}' exists already. Give the backup a name that is free.")


def back_up_anyhow(path: Path, target: Path) -> None:
    """Back up a store, by the process that serves it if there is one.

    Raises:
        StoreError: If there is no store, or the target exists.
    """
    target = target.resolve()
    check_target(target)
    with open_store(path, create=False) as store:
        if store.server:
            store.query(f"SELECT {BACKUP}({quote_literal(str(target))}) AS target")
        else:
            back_up(store, path, target)


def back_up(store: Store, path: Path, target: Path) -> None:
    """Copy a store that only the caller writes at present, its spool and judges' answers.

    Args:
        store: Direct.
        path: Its file.
        target: The file to make; its spool and answers go beside it.

    Raises:
        StoreError: If the target exists, or a transaction that goes on prevents a checkpoint.
        OSError: If it cannot be written.
    """
    check_target(target)
    partial = target.with_name(f".{target.name}.partial")
    try:
        _copy_file(store, path, partial)
        _copy_spool(store, spool_folder(path), spool_folder(target))
        if judge_cache(path).exists():
            _copy_sqlite(judge_cache(path), judge_cache(target))
        partial.rename(target)
    except BaseException:
        shutil.rmtree(spool_folder(target), ignore_errors=True)
        judge_cache(target).unlink(missing_ok=True)
        raise
    finally:
        partial.unlink(missing_ok=True)
    open_store(target, read_only=True).close()  # it is whole, or says why not


def _copy_file(store: Store, path: Path, target: Path) -> None:
    """Copy the file as of a checkpoint.

    Between checkpoints DuckDB writes to the log and to blocks that the headers do not lead to. So
    the copy is whole if no checkpoint came meanwhile; another process's large commit may cause one.
    """
    for _ in range(ATTEMPTS):
        _checkpoint(store)
        before = _headers(path)
        with path.open("rb") as source, _create(target) as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        if _headers(path) == before == _headers(target):
            return
    raise StoreError("The store was changed by others while it was copied. Try again.")


def _checkpoint(store: Store) -> None:
    deadline = time.monotonic() + CHECKPOINT_SECONDS
    while not store.checkpoint():
        if time.monotonic() > deadline:
            raise StoreError("A transaction of another process goes on for too long. Try again.")
        time.sleep(0.1)


def _headers(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)


def _create(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _copy_spool(store: Store, source: Path, target: Path) -> None:
    """Copy what is not stored yet; a half-written record at the end was not acknowledged."""
    if not source.exists():
        return
    position = spool_position(store)
    target.mkdir(mode=PRIVATE_FOLDER)
    shutil.copy2(source / SPOOL_ID, target / SPOOL_ID)
    for segment in segments_of(source):
        if segment >= position.segment:
            shutil.copy2(segment_path(source, segment), segment_path(target, segment))
    for kept in (one for one in source.iterdir() if one.is_dir()):  # bodies set aside
        shutil.copytree(kept, target / kept.name)


def _copy_sqlite(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)
