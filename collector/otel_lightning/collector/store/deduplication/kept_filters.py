"""Keep the filters of `SeenIds`, and times of traces, in a file from one process to the next.

To build the filters from ten million stored spans takes eight CPU-seconds, during which nothing is
stored. The times of traces cannot be built again: without them the rows of a trace that goes on are
searched for in whole tables.

The file is written when a process has closed the store, and deleted when the next one has read it.
It counts only if the store's file is the one that was closed then, to the nanosecond of its last
change: a filter that lacks an id would let a duplicate in, while one with too many does no harm.
Another version of DuckDB may hash the same id to another key, so it has to be the same one.
"""

import json
import logging
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

from otel_lightning.collector.files.atomic import PRIVATE, replaced
from otel_lightning.collector.store.deduplication.bloom_filter import BloomFilter

logger = logging.getLogger(__name__)

FORMAT = 2
"""Raise it when the file gets other parts, or an id other bits: when its key, or `BloomFilter`, is
computed otherwise."""
LEAST_IDS = 500_000
"""Filters of fewer ids are not kept: to build them takes less than half a second."""
Filters = dict[str, list[BloomFilter]]
"""The filters by table; each holds other ids."""


class Kept(NamedTuple):
    """Facts about the stored rows that a process passes on, so that the next reads them no more."""

    filters: Mapping[str, list[BloomFilter]]
    """The filters of `SeenIds`; empty if they are not to be used again."""
    traces: bytes = b""
    """The times of traces, as `RecentTraces` writes them; empty if they are not known."""


NOTHING = Kept({})
"""The facts about a store without such a file."""


def filters_file(store_path: Path) -> Path:
    """Return the file of the kept filters, which is beside the store."""
    return store_path.with_name(store_path.name + ".ids")


def are_worth_keeping(filters: Mapping[str, list[BloomFilter]]) -> bool:
    """Return whether the filters have so many ids that it takes long to build them again."""
    return sum(one.rows for some in filters.values() for one in some) >= LEAST_IDS


def keep(store_path: Path, kept: Kept) -> None:
    """Write what is known about a store that was closed, if it is worth it.

    A disk that is too full for it is no error: the filters are built again.
    """
    if not are_worth_keeping(kept.filters):
        return
    contents = [
        (table, one.capacity, one.rows, one.probes, one.bits)
        for table, some in kept.filters.items()
        for one in some
    ]
    parts: list[Any] = [*(bits.data for *_, bits in contents), kept.traces]
    try:
        head = {
            "store": _stamp(store_path),
            "made_by": [FORMAT, duckdb.__version__],
            "filters": [content[:4] for content in contents],
            "checksum": _checksum(parts),
        }
        with replaced(filters_file(store_path), PRIVATE) as temporary, temporary.open("wb") as file:
            file.write(json.dumps(head).encode() + b"\n")
            for part in parts:
                file.write(part)
    except OSError as error:
        logger.info("The filters of stored ids cannot be saved: %s", error)


def take(store_path: Path) -> Kept:
    """Read and delete what is known about a store that was just opened; nothing if it does not fit.

    Call it while this process holds the file: another one may write ids that the filters lack. To
    open a file changes nothing in it, unless DuckDB had a log to write or it was migrated.
    """
    file = filters_file(store_path)
    try:
        content = file.read_bytes()
        file.unlink()  # from now on the store has ids that it lacks
        kept = _read(content, _stamp(store_path))
    except FileNotFoundError:
        return NOTHING
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.info("The kept filters of stored ids are not used: %s", error)
        return NOTHING
    if store_path.with_name(store_path.name + ".wal").exists():
        return NOTHING
    return kept


def _read(content: bytes, stamp: list[int]) -> Kept:
    head, _, rest = content.partition(b"\n")
    header: dict[str, Any] = json.loads(head)
    if header["store"] != stamp:
        raise ValueError("the store has changed since")
    if header["made_by"] != [FORMAT, duckdb.__version__]:
        raise ValueError("another version has made them")
    parts, at = [], 0
    for table, capacity, rows, probes in header["filters"]:
        restored = BloomFilter(capacity, probes)
        size = len(restored.bits)
        restored.restore(np.frombuffer(rest, np.uint8, size, at), rows)
        at += size
        parts.append((table, restored))
    traces = rest[at:]
    if header["checksum"] != _checksum([*(one.bits.data for _, one in parts), traces]):
        raise ValueError("the file is damaged")
    filters: Filters = {}
    for table, one in parts:
        filters.setdefault(table, []).append(one)
    return Kept(filters, traces)


def _stamp(store_path: Path) -> list[int]:
    """Return the inode, size and time of the store's file, which change with its content."""
    now = store_path.stat()
    return [now.st_ino, now.st_size, now.st_mtime_ns]


def _checksum(parts: list[Any]) -> int:
    checksum = 0
    for bits in parts:
        checksum = zlib.crc32(bits, checksum)
    return checksum
