"""The time bounds of traces that `RecentTraces` no longer remembers as a whole.

Each takes 22 bytes instead of some 300: a hash of its id, three times in whole seconds, and the
tables that have rows of it. The times are rounded down, so a search from them finds all rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_lightning.collector.refresh.time_ranges.time_bounds import TIMES, TimeBounds

MOST_PARTS = 128
"""Number of parts that are remembered: with `RecentTraces.SPARE` traces each, two million traces,
which take 46 MB."""
SECOND_NS = 1_000_000_000
ABSENT = 0xFFFF_FFFF
"""Stands for a time that the trace does not have, because there are no such rows. As the time of
receipt, it says that the bounds of the trace are not known."""
UNKNOWN_TIME = 0
"""Stands for rows of any time."""
RECORD = np.dtype(
    [("trace", "<u8"), ("received", "<u4"), ("keys", "<u4"), ("rows", "<u4"), ("tables", "<u2")]
)
"""The record of one trace; the times are Unix seconds."""
_BITS = {table: 1 << number for number, table in enumerate(TIMES)}


class OlderTraces:
    """Lower bounds of the times of many traces, in parts: the newest part is the last."""

    def __init__(self, most_parts: int = MOST_PARTS) -> None:
        """Begin without traces.

        Args:
            most_parts: Above this number of parts the oldest one is forgotten.
        """
        self._parts: list[NDArray[Any]] = []
        self._most_parts = most_parts

    def __len__(self) -> int:
        """Return the number of traces, some of them counted twice."""
        return sum(map(len, self._parts))

    def add(self, bounds: Mapping[str, TimeBounds]) -> None:
        """Remember traces as the newest part.

        A trace with spans that came since it was derived is dropped: the short form cannot hold the
        time since when they came.
        """
        rows = [
            (
                _hashed(trace_id),
                _seconds(one.received_ns) if one.late_ns is None else ABSENT,
                ABSENT if one.keys_ns is None else _seconds(one.keys_ns),
                _first_row(one.derived),
                sum(_BITS[table] for table in one.derived),
            )
            for trace_id, one in bounds.items()
        ]
        self._append([np.sort(np.array(rows, RECORD), order="trace")])

    def find(self, trace_ids: Sequence[str]) -> dict[str, TimeBounds]:
        """Return the bounds of those traces that are remembered."""
        found: dict[str, Any] = {}
        hashes = np.array([_hashed(one) for one in trace_ids], np.uint64)
        # A trace is in several parts if it was found and forgotten again: the last one is right.
        for part in self._parts if trace_ids else ():
            at = np.minimum(np.searchsorted(part["trace"], hashes), len(part) - 1)
            for position in np.flatnonzero(part["trace"][at] == hashes).tolist():
                found[trace_ids[position]] = part[at[position]]
        known = {one: record for one, record in found.items() if record["received"] != ABSENT}
        return {trace_id: _bounds(record) for trace_id, record in known.items()}

    def to_bytes(self) -> bytes:
        """Return all traces as bytes, for `restore` in another process."""
        head = {"tables": [*TIMES], "parts": [len(part) for part in self._parts]}
        return b"\n".join([json.dumps(head).encode(), b"".join(one.data for one in self._parts)])

    def restore(self, kept: bytes) -> None:
        """Add what `to_bytes` returned; nothing if that knew other tables.

        Raises:
            ValueError: If the bytes are not whole.
        """
        head, _, content = kept.partition(b"\n")
        header = json.loads(head)
        if header["tables"] != [*TIMES]:
            return
        ends = [*accumulate(header["parts"], initial=0)]
        records = np.frombuffer(content, RECORD, ends[-1])
        self._append(records[start:end] for start, end in pairwise(ends))

    def _append(self, parts: Iterable[NDArray[Any]]) -> None:
        self._parts += [one for one in parts if len(one)]
        del self._parts[: max(len(self._parts) - self._most_parts, 0)]

    def clear(self) -> None:
        """Forget all traces."""
        self._parts.clear()


def _hashed(trace_id: str) -> int:
    # Not by `hash`, which differs from process to process, nor by the digits of the id: those of
    # some senders are no random numbers.
    return int.from_bytes(blake2b(trace_id.encode(), digest_size=8).digest(), "little")


def _seconds(time_ns: int) -> int:
    return min(max(time_ns // SECOND_NS, UNKNOWN_TIME), ABSENT - 1)


def _first_row(earliest: Mapping[str, int | None]) -> int:
    """Return the earliest time of all tables that have times, in Unix seconds."""
    times = [time_ns for table, time_ns in earliest.items() if TIMES[table] is not None]
    return min((_seconds(time_ns or 0) for time_ns in times), default=ABSENT)


def _bounds(record: Any) -> TimeBounds:
    _, received, keys, rows, tables = record.item()
    return TimeBounds(
        received_ns=received * SECOND_NS,
        derived={
            table: None if column is None or rows == UNKNOWN_TIME else rows * SECOND_NS
            for table, column in TIMES.items()
            if tables & _BITS[table]
        },
        keys_ns=None if keys == ABSENT else keys * SECOND_NS,
    )
