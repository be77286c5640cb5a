"""Derived rows as Arrow tables, in the columns of the store's tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from otel_lightning.collector.derive.rows import Derived, LlmCall
from otel_lightning.collector.derive.text.json_text import dumps

TEXT_AT_ONCE = 8_000_000
"""A table ends after about this many characters of JSON: this bounds memory."""
ROWS_AT_ONCE = 32
"""Number of rows whose JSON is written before its size is looked at: a row may have megabytes."""
JSON_COLUMNS = {
    "request_params",
    "tool_definitions",
    "input_messages",
    "output_messages",
    "arguments",
    "result",
    "documents",
}
JSON = pa.json_()
LONGEST_COLUMN = 2**31 - 1
"""Largest size of the texts of an Arrow array, in bytes: its offsets have 32 bits."""
MESSAGES = ("input_messages", "output_messages")
"""The columns of `LlmCall.packed`, in its order."""
SHARED = (str, int, type(None))
"""The types of values that are converted once where all rows have the same one. Not floating-point
numbers, because 0.0 equals -0.0."""
RECORDED_AS = {"start_time": "start_ns", "end_time": "end_ns", "time": "time_ns"}
Texts = dict[str, list[bytes | None]]


def tables(derived: Derived, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows as tables, `rollout_tasks` first.

    Args:
        derived: The rows.
        schemas: The columns of each of `derive.tables.TABLES`.
    """
    if derived.tasks:
        # A judgement without a trace comes from the trace with the empty id.
        stated = [derived.tasks_stated_by.get(rollout_id) or None for rollout_id in derived.tasks]
        yield (
            "rollout_tasks",
            pa.table(
                {
                    "rollout_id": list(derived.tasks),
                    "task_id": list(derived.tasks.values()),
                    "stated_by": pa.array(stated, pa.string()),
                }
            ),
        )
    # The calls of a rollout repeat each other's messages: side by side they compress best.
    calls = sorted(derived.llm_calls, key=lambda call: (call.rollout_id or "", call.step or 0))
    records: dict[str, Sequence[Any]] = {
        "llm_calls": calls,
        "tool_calls": derived.tool_calls,
        "agent_runs": derived.agent_runs,
        "retrievals": derived.retrievals,
        "reward_events": derived.rewards,
        "arms": derived.arms,
    }
    for table, some in records.items():
        yield from ((table, part) for part in _parts(some, schemas[table]))
    if derived.unread:
        unread = [
            {"trace_id": trace, "span_id": span, "reason": reason}
            for (trace, span), reason in derived.unread.items()
        ]
        yield "unread_spans", pa.Table.from_pylist(unread)


def _parts(records: Sequence[Any], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield records as tables, each of about `TEXT_AT_ONCE` characters of JSON at most."""
    texts: Texts = {name: [] for name in schema.names if name in JSON_COLUMNS}
    # `first` is the first row that was not yielded yet.
    first = size = 0
    for start in range(0, len(records), ROWS_AT_ONCE):
        some = records[start : start + ROWS_AT_ONCE]
        for name, column in texts.items():
            written = _WRITERS.get(name, _written)(some, name)
            size += sum(map(len, filter(None, written)))
            column.extend(written)
        if size > TEXT_AT_ONCE:
            end = start + len(some)
            yield _arrow(records[first:end], texts, schema)
            texts, first, size = {name: [] for name in texts}, end, 0
    if first < len(records):
        yield _arrow(records[first:], texts, schema)


def _written(records: Sequence[Any], name: str) -> list[bytes | None]:
    """Return one column of some records as JSON."""
    values = [*map(attrgetter(name), records)]
    texts: list[bytes | None]
    try:
        texts = [*map(orjson.dumps, values)]
    except TypeError:  # `dumps` writes larger numbers, too
        texts = [*map(dumps, values)]
    if None in values:
        return [None if value is None else text for value, text in zip(values, texts, strict=True)]
    return texts


def _written_once(records: Sequence[Any], name: str) -> list[bytes | None]:
    """Return what `_written` does; a value that records in a row share is written once."""
    last: Any = None
    text: bytes | None = None
    texts = []
    for value in map(attrgetter(name), records):
        if value is not last:
            last, text = value, None if value is None else dumps(value)
        texts.append(text)
    return texts


def _messages(calls: Sequence[LlmCall], name: str) -> list[bytes | None]:
    """Return one column of messages; those of a packed call are JSON already."""
    place = MESSAGES.index(name)
    values = zip(map(attrgetter(name), calls), [call.packed for call in calls], strict=True)
    return [
        packed[place] if packed else None if value is None else dumps(value)
        for value, packed in values
    ]


_WRITERS: dict[str, Callable[[Sequence[Any], str], list[bytes | None]]] = {
    **dict.fromkeys(MESSAGES, _messages),
    "tool_definitions": _written_once,  # the calls of an agent share one list
}
"""Writers of the columns that most records share, or have as JSON already."""


def _arrow(rows: Sequence[Any], texts: Texts, schema: pa.Schema) -> pa.Table:
    """Build a table column by column. JSON is typed as such, so DuckDB does not parse it again."""
    others = [RECORDED_AS.get(name, name) for name in schema.names if name not in texts]
    # The values row by row, transposed: `next` returns one whole column after the other.
    values = zip(*map(attrgetter(*others), rows), strict=True)
    columns: dict[str, pa.Array] = {}
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name in texts:
            columns[name] = pa.ExtensionArray.from_storage(JSON, _joined(texts[name]))
        else:
            columns[name] = _column(next(values), kind)
    return pa.table(columns)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the values of one or more rows as an array."""
    first = values[0]
    if first == values[-1] and isinstance(first, SHARED) and values.count(first) == len(values):
        return pa.repeat(pa.scalar(first, kind), len(values))
    return pa.array(values, kind)


def _joined(texts: Sequence[bytes | None]) -> pa.StringArray:
    """Return texts as an array. They are UTF-8 already, so nothing is checked again."""
    known = [text for text in texts if text is not None]
    ends = np.fromiter(accumulate(map(len, known), initial=0), np.int64, len(known) + 1)
    if len(known) < len(texts) or ends[-1] > LONGEST_COLUMN:
        return pa.array(texts, pa.binary()).view(pa.string())
    # One copy into memory of the right size, where `pa.array` grows its memory step by step.
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(known))]
    return pa.Array.from_buffers(pa.string(), len(known), buffers)
