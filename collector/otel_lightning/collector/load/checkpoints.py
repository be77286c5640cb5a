"""When DuckDB writes its log into the file: a checkpoint, for which commits have to wait."""

import time
from collections.abc import Callable

import pyarrow as pa

from otel_lightning.collector.alarms import CHECKPOINTING, Alarms
from otel_lightning.collector.store import Store

STORED_BYTES = 32 * 1024 * 1024
"""Bytes of requests that are stored between two checkpoints."""
LONG_BYTES = 34 * 1024 * 1024
"""A batch of more bytes, twice `read_ahead.BATCH_BYTES`, has a request so long that a checkpoint
with it may not fit `--memory`."""
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
        self._has_long_texts = False  # since the start: later checkpoints read them again
        self._blocked_at: float | None = None  # since when no checkpoint was possible

    def stored(self, size: int) -> None:
        """Record that requests of `size` bytes were stored; write a checkpoint if it is due."""
        self._unwritten += size
        self._has_long_texts = self._has_long_texts or size > LONG_BYTES
        if self._unwritten >= STORED_BYTES:
            self.write()

    def write(self) -> None:
        """Write a checkpoint if anything was stored since the last one; release unused memory."""
        if not self._unwritten:
            return
        if self._store.checkpoint(more_memory=self._has_long_texts):
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
