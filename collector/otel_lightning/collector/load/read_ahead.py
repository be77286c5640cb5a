"""The records that the loader stores next: as many as fill row groups, in the spool's order."""

from collections.abc import Iterator, Sequence

import numpy as np

from otel_lightning.collector.load.batches import Request
from otel_lightning.collector.spool.format import Position, Record
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import ROW_GROUP_ROWS

BATCH_BYTES = 17 * 1024 * 1024
"""Most bytes to store in one transaction."""


class ReadAhead:
    """The records that were read from the spool and wait for a larger batch."""

    def __init__(self, spool: Spool) -> None:
        """Begin without records."""
        self._spool = spool
        self._records: list[Record] = []

    def oldest_ns(self, position: Position) -> int | None:
        """Return when the first request after the stored ones was received; None if there is none.

        Args:
            position: The position in the spool up to which requests are stored.
        """
        if self._records:
            return self._records[0].received_ns
        return self._spool.oldest_ns(position)

    def rows(self, position: Position) -> int:
        """Return how many rows wait after a position, as far as they fit into one batch.

        Args:
            position: The position in the spool up to which requests are stored.
        """
        self._read(position)
        return sum(record.rows for record in self._records)

    def take(self, position: Position, least_rows: int) -> list[Record]:
        """Return the records of the next batch, or [] if fewer rows and bytes wait.

        Args:
            position: The position in the spool up to which requests are stored.
            least_rows: Fewest rows of a batch of less than `BATCH_BYTES`.
        """
        is_enough = self.rows(position) >= least_rows
        records = self._records
        if not records or not (is_enough or size_of(records) >= BATCH_BYTES):
            return []
        count = _filling(records)
        batch, self._records = records[:count], records[count:]
        return batch

    def _read(self, position: Position) -> None:
        records = self._records
        if (room := BATCH_BYTES - size_of(records)) > 0:
            records += self._spool.read(records[-1].end if records else position, room)

    def clear(self) -> None:
        """Drop the records, so that they are read again from the position that is stored."""
        self._records = []


def size_of(records: Sequence[Record]) -> int:
    """Return the number of bytes of the bodies of records."""
    return sum(len(record.body) for record in records)


def as_requests(records: list[Record]) -> Iterator[Request]:
    """Yield the request of each record; empties the list, so that memory is freed on the way."""
    records.reverse()
    while records:
        record = records.pop()
        yield Request(record.signal, record.received_ns, record.body, record.damaged)


def _filling(records: Sequence[Record]) -> int:
    """Return the number of records to store together: as many as fill whole row groups, or all.

    DuckDB writes a full, or almost full, row group to the file once. It would write the rows of a
    small rest again at the next checkpoint, so such a rest waits for the next batch.
    """
    rows = np.cumsum([record.rows for record in records])
    partial_rows = rows % ROW_GROUP_ROWS
    fills = (rows >= ROW_GROUP_ROWS) & (
        (partial_rows == 0) | (partial_rows > ROW_GROUP_ROWS * 3 // 4)
    )
    return int(np.flatnonzero(fills)[-1]) + 1 if fills.any() else len(records)
