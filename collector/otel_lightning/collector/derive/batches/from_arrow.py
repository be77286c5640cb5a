"""Received rows as records: Arrow columns in, spans and log records out.

Maps are converted column by column and not value by value, and one slice of the rows at a time, so
that the Python objects of a large trace never exist all at once.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, pairwise, repeat
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from otel_lightning.collector.derive.attributes.shapes import Shape, Shaped, shape_of_keys
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.rows import Attributes, Event, Log, Span

_SPAN: Callable[[Any], Span] = partial(tuple.__new__, Span)
"""Makes a span of a tuple of all its fields, without the checks of `Span._make`."""
SLICE_BYTES = 4_000_000
"""Size of the columns, in bytes, that are converted to Python objects at once."""


def spans(batches: Iterable[pa.RecordBatch], memory: MessageMemory | None) -> Iterator[Span]:
    """Yield the spans of rows in the form of `refresh/sql/spans.sql`.

    Args:
        batches: The rows.
        memory: The memory that all these spans get.
    """
    for batch in _filled(batches):
        columns = {name: batch.column(name) for name in batch.schema.names}
        # The last fields of `Span`, in its order. The plain columns of `spans.sql` are the first
        # ones.
        nested: list[Iterable[Any]] = [
            _resources(columns.pop("resource")),
            _maps(columns.pop("attributes")),
            _events(columns.pop("events")),
            _links(columns.pop("links")),
            repeat(()),
            repeat(memory),
        ]
        plain: list[Iterable[Any]] = [column.to_pylist() for column in columns.values()]
        yield from map(_SPAN, zip(*plain, *nested, strict=False))


def logs(rows: pa.Table) -> Iterator[Log]:
    """Yield the log records of rows in the form of `refresh/sql/logs.sql`."""
    for batch in _slices(rows):
        columns = {name: batch.column(name) for name in batch.schema.names}
        maps = {name: _maps(columns.pop(name)) for name in ("attributes", "resource")}
        plain = {name: column.to_pylist() for name, column in columns.items()}
        yield from _rows(plain | maps)


def _filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of about `SLICE_BYTES`: each batch has a fixed cost."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        if size >= SLICE_BYTES:
            yield from _slices(pa.Table.from_batches(some).combine_chunks())
            some, size = [], 0
    if some:
        yield from _slices(pa.Table.from_batches(some).combine_chunks())


def _slices(rows: pa.Table) -> list[pa.RecordBatch]:
    # Rows per slice, from their average size.
    size = SLICE_BYTES * max(len(rows), 1) // max(rows.nbytes, 1)
    batches: list[pa.RecordBatch] = rows.to_batches(max_chunksize=max(size, 1))
    return batches


def _rows(columns: dict[str, list[Any]]) -> Iterator[Log]:
    for values in zip(*columns.values(), strict=True):
        yield Log(**dict(zip(columns, values, strict=True)))


def _resources(column: pa.StringArray) -> list[Attributes]:
    """Return a column of maps written as JSON as dictionaries: few differ, and those are shared."""
    coded = column.dictionary_encode()
    distinct = [_stated(orjson.loads(text)) for text in coded.dictionary.to_pylist()]
    return [distinct[code] for code in coded.indices.to_pylist()]


def _maps(column: pa.MapArray) -> list[Attributes]:
    """Return a column of maps as dictionaries that know their shape; null is as good as no key.

    Keys are compared as the bytes of their dictionary codes: one hash of a short text a span.
    """
    offsets = column.offsets.to_numpy()  # [maps + 1]
    # A slice of a column keeps the offsets of the whole column, so its first offset is subtracted.
    first = offsets[0]
    names, values = (
        child.slice(first, offsets[-1] - first) for child in (column.keys, column.items)
    )
    if values.null_count:
        return _maps_with_nulls(offsets.tolist(), names, values)
    coded = names.dictionary_encode()
    spelled = coded.dictionary.to_pylist()
    codes = coded.indices.to_numpy().astype(np.min_scalar_type(len(spelled)))
    # All rows share one dictionary, so equal bytes of codes are equal keys in the same order.
    text = codes.tobytes()
    shapes: dict[bytes, Shape] = {}
    maps: list[Attributes] = []
    rest = iter(values.to_pylist())
    for start, end in pairwise(((offsets - first) * codes.itemsize).tolist()):
        code = text[start:end]
        shape = shapes.get(code)
        if shape is None:
            own = tuple([spelled[one] for one in np.frombuffer(code, codes.dtype)])
            shape = shapes[code] = shape_of_keys(own)
        # `shape.keys` comes first: `zip` asks it first and ends before it takes a value of the next
        # map.
        one = Shaped(zip(shape.keys, rest, strict=False))
        one.shape = shape
        maps.append(one)
    return maps


def _maps_with_nulls(
    offsets: list[int], names: pa.StringArray, values: pa.StringArray
) -> list[Attributes]:
    pairs = zip(names.to_pylist(), values.to_pylist(), strict=True)
    return [_stated(dict(islice(pairs, end - start))) for start, end in pairwise(offsets)]


def _stated(attributes: Attributes) -> Attributes:
    return {key: value for key, value in attributes.items() if value is not None}


def _events(column: pa.ListArray) -> list[tuple[Event, ...]]:
    inner = column.flatten()
    if not len(inner):
        return [()] * len(column)
    names, times, maps = (inner.field(name) for name in ("name", "time_ns", "attributes"))
    events = list(map(Event, names.to_pylist(), times.to_pylist(), _maps(maps)))
    return _cut(events, column)


def _links(column: pa.ListArray) -> list[tuple[tuple[str, str], ...]]:
    inner = column.flatten()
    if not len(inner):
        return [()] * len(column)
    traces, spans = (inner.field(name).to_pylist() for name in ("trace_id", "span_id"))
    return [
        tuple((trace_id, span_id) for trace_id, span_id in some if trace_id and span_id)
        for some in _cut([*zip(traces, spans, strict=True)], column)
    ]


def _cut(values: list[Any], column: pa.ListArray) -> list[tuple[Any, ...]]:
    """Cut the values of a column of lists where its lists end."""
    lengths = column.value_lengths().fill_null(0).to_numpy()  # [lists]
    ends = lengths.cumsum()
    parts: list[tuple[Any, ...]] = [()] * len(column)
    for place in lengths.nonzero()[0].tolist():  # most lists are empty
        parts[place] = tuple(values[ends[place] - lengths[place] : ends[place]])
    return parts
