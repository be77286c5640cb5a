"""When DuckDB writes its log into the file: a checkpoint, for which commits have to wait."""

import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from otel_lightning.collector.alarms import CHECKPOINTING, Alarms
from otel_lightning.collector.store import Store

STORED_BYTES = 32 * 1024 * 1024
"""Bytes of requests that are stored between two checkpoints."""
LONG_BYTES = 34 * 1024 * 1024
"""A batch of more bytes, twice `read_ahead.BATCH_BYTES`, has a request so long that a checkpoint
with it may not fit `--memory`."""
USUAL_ROW_BYTES, EXCESS_BYTES = 32 * 1024, 16 * 1024 * 1024
"""A store has many long texts if its requests had more than `USUAL_ROW_BYTES` for each row, and the
excess has added up to `EXCESS_BYTES`. A checkpoint that merges row groups holds 2,048 rows in
memory at once."""
LEAST_BYTES = 8 * 1024 * 1024
"""In a store with many long texts, fewer bytes are not worth a checkpoint: its row group would stay
small, because it is never merged, and each one costs a search for a trace 0.02 ms of CPU."""
BLOCKED_SECONDS = 300.0
"""Time without a possible checkpoint after which an alarm is raised."""
BLOCKED = (
    "statements or transactions of SQL clients go on. End the clients that have the writer token; a"
    " statement of theirs that goes on without its client ends when lightning-ingest is restarted"
)


class Checkpoints:
    """The checkpoints of one store, written between two batches."""

    def __init__(self, store: Store, alarms: Alarms, await_readers: Callable[[], object]) -> None:
        """Start with nothing to write.

        Args:
            store: A direct store.
            alarms: Gets the alarm `checkpointing`.
            await_readers: Waits until no other thread of the loader reads spans. To release memory,
                DuckDB's limit is lowered for a moment, at which a large read would fail.
        """
        self._store, self._alarms, self._await_readers = store, alarms, await_readers
        self._unwritten = 0  # bytes stored since the last checkpoint
        self._has_long_request = False  # since the last checkpoint
        self._has_long_texts = store.has_long_texts
        self._excess = 0  # bytes over `USUAL_ROW_BYTES` a row
        self._blocked_at: float | None = None  # since when no checkpoint was possible

    def stored(self, size: int, rows: int) -> None:
        """Record that requests of some bytes and rows were stored; write a checkpoint if due."""
        self._unwritten += size
        self._has_long_request = self._has_long_request or size > LONG_BYTES
        self._excess = max(0, self._excess + size - rows * USUAL_ROW_BYTES)
        if self._excess > EXCESS_BYTES and not self._has_long_texts:
            # Without the note's file it is tried again: the disk may be full.
            with suppress(OSError):
                self._store.note_long_texts()
                self._has_long_texts = True
        if self._unwritten >= STORED_BYTES:
            self.write()

    def write(self) -> None:
        """Write a checkpoint if enough was stored since the last one; release unused memory."""
        if self._unwritten < (LEAST_BYTES if self._has_long_texts else 1):
            return
        if self._store.checkpoint(more_memory=self._has_long_request):
            self._has_long_request = False
            self._unwritten, self._blocked_at = 0, None
            self._alarms.clear(CHECKPOINTING)
            # DuckDB's cache and Arrow's allocator keep memory that the batches no longer need.
            self._await_readers()
            self._store.release_memory()
            pa.default_memory_pool().release_unused()
            return
        self._blocked_at = self._blocked_at or time.monotonic()
        if time.monotonic() - self._blocked_at >= BLOCKED_SECONDS:
            self._alarms.raise_alarm(CHECKPOINTING, BLOCKED)
