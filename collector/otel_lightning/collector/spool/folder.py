"""The folder of a spool: where it is, and how many of its bytes wait or are damaged."""

from collections.abc import Mapping
from pathlib import Path

from otel_lightning.collector.spool.format import (
    Position,
    contents,
    segment_size,
    segments_of,
)

SET_ASIDE = "dead"
"""Name of the folder, inside the spool, for bytes that cannot be stored."""


def spool_folder(store_path: Path) -> Path:
    """Return the spool's folder, which is beside the store."""
    return store_path.with_name(store_path.name + ".spool")


def dead_letters(store_path: Path) -> Path:
    """Return the folder for requests that cannot be stored; `forget` erases from it."""
    return spool_folder(store_path) / SET_ASIDE


def backlog(folder: Path, loaded: Position) -> int:
    """Return the number of bytes of a spool after a position."""
    waiting = [n for n in segments_of(folder) if n >= loaded.segment]
    return bytes_after({n: segment_size(folder, n) for n in waiting}, loaded)


def damaged(folder: Path, loaded: Position, *, writing: bool) -> int:
    """Return the number of damaged bytes after a position.

    Args:
        folder: The spool's folder.
        loaded: Position up to which requests are stored.
        writing: Whether a process appends now. Then the last segment is skipped, because it may
            end in a partly written record.
    """
    segments = [n for n in segments_of(folder) if n >= loaded.segment]
    return sum(
        damage.size
        for segment in (segments[:-1] if writing else segments)
        for damage in contents(folder, segment).damages
        if damage.end > loaded
    )


def bytes_after(sizes: Mapping[int, int], loaded: Position) -> int:
    """Count the bytes after a position, given the size of each segment."""
    waiting = sum(size for segment, size in sizes.items() if segment >= loaded.segment)
    return waiting - (loaded.offset if loaded.segment in sizes else 0)
