"""Answers as a table for people."""

import pyarrow as pa

from otel_lightning.collector.store.print_rows import as_table

NANOSECONDS = pa.timestamp("ns")


def test_times_keep_their_nanoseconds_at_any_depth() -> None:
    event = pa.struct([("time", NANOSECONDS), ("seen", pa.map_(pa.string(), NANOSECONDS))])
    rows = pa.table(
        {
            "at": pa.array([1_700_000_000_123_456_789, None], NANOSECONDS),
            "events": pa.array([[{"time": 1, "seen": {"k": 2}}], None], pa.list_(event)),
        }
    )
    text = as_table(rows)
    assert "2023-11-14 22:13:20.123456789" in text
    assert "1970-01-01 00:00:00.000000001" in text
