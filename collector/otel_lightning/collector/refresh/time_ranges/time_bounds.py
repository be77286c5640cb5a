"""Lower bounds of the times of one trace's rows."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

TIMES = {
    "llm_calls": "start_time",
    "tool_calls": "start_time",
    "agent_runs": "start_time",
    "retrievals": "start_time",
    "arms": "time",
    "reward_events": "time",
    "rollout_rows": "start_time",
    "unread_spans": None,
    "rollout_tasks": None,
}
"""The column of each derived table that bounds a search; None if the table has no times."""

EarliestTimes = dict[str, int | None]
"""The earliest time of rows by table, in Unix nanoseconds; None if a row has no time. A table
without rows is missing."""


class TimeBounds(NamedTuple):
    """Lower bounds of the times of one trace's rows, in Unix nanoseconds."""

    received_ns: int
    """No span or log record of the trace was received before this."""
    derived: EarliestTimes
    """The earliest times of the derived rows; shared by the traces of one batch."""
    keys_ns: int | None = None
    """No key of the trace was written before this; None if it has none."""
    late_ns: int | None = None
    """No span or log record that came since the trace was derived was received before this; None if
    none came."""


def note_earliest(table: str, rows: pa.Table, earliest: EarliestTimes) -> None:
    """Record the earliest time of some new rows of a table."""
    if table not in TIMES or not len(rows):
        return
    column = TIMES[table]
    time_ns = None
    if column is not None and not rows[column].null_count:
        time_ns = int(pc.min(rows[column].cast(pa.timestamp("ns")).cast(pa.int64())).as_py())
    earliest[table] = time_ns if table not in earliest else _lower(earliest[table], time_ns)


def merged(one: EarliestTimes, other: EarliestTimes) -> EarliestTimes:
    """Return the earliest times of the rows of both."""
    both = dict(one)
    for table, time_ns in other.items():
        both[table] = _lower(both[table], time_ns) if table in both else time_ns
    return both


def _lower(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)
