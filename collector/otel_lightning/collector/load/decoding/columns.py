"""Convert columns of OTLP's records: ids to hex, times, enums to names, bytes to text."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
HEX = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2")
"""The two hex digits of each byte."""


def is_id(ids: pa.Array, size: int) -> pa.Array:
    """Return for each id, shape [N], whether it has `size` bytes that are not all zero."""
    zero = pa.scalar(bytes(size), ids.type)
    return pc.and_(pc.equal(pc.binary_length(ids), size), pc.not_equal(ids, zero))


def hex_ids(ids: pa.Array, size: int) -> pa.Array:
    """Convert ids to lower-case hex, shape [N]; an invalid id becomes NULL."""
    valid = is_id(ids, size)
    # All ids are converted by one table lookup of their bytes, not by one Python call for each.
    raw = b"".join(ids.filter(valid).to_pylist())
    text = HEX[np.frombuffer(raw, np.uint8)].tobytes()
    offsets = np.arange(0, len(text) + 1, 2 * size, dtype=np.int32)
    texts = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))
    # The place of each valid id among the valid ones: their running number, from 0.
    position = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return texts.take(pc.if_else(valid, position, pa.scalar(None, pa.int64())))


def times(nanoseconds: pa.Array) -> pa.Array:
    """Convert Unix nanoseconds to timestamps; 0 and values above 63 bits become NULL (unknown)."""
    valid = pc.if_else(pc.greater(nanoseconds, 0), nanoseconds, pa.scalar(None, pa.int64()))
    return valid.cast(pa.timestamp("ns"))


def receipt_times(request: pa.Array, received_ns: Sequence[int]) -> pa.Array:
    """Return the time of receipt of each record, shape [N].

    Args:
        request: Index of the request of each record, shape [N].
        received_ns: Time of receipt of each request, Unix nanoseconds, shape [R].
    """
    return pa.array(received_ns, pa.int64()).take(request).cast(pa.timestamp("ns"))


def enum_names(numbers: pa.Array, names: Sequence[str]) -> pa.Array:
    """Name the numbers of an enum, shape [N]; an unknown number stays a number."""
    unique = pc.fill_null(numbers, 0).dictionary_encode()
    texts = [names[n] if 0 <= n < len(names) else str(n) for n in unique.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(unique.indices)


def severities(numbers: pa.Array) -> pa.Array:
    """Name severity numbers: each level has four, from TRACE (1 to 4) to FATAL (21 to 24)."""
    names = [SEVERITIES[(n - 1) // 4] if 1 <= n <= 24 else None for n in numbers.to_pylist()]  # noqa: PLR2004
    return pa.array(names, pa.string())


def member(struct: pa.StructArray, name: str) -> pa.Array:
    """Return a field of a message; NULL where the message is absent."""
    return pc.struct_field(struct, name)


def or_null(texts: pa.Array) -> pa.Array:
    """Replace '' by NULL: protobuf does not distinguish an empty text from a missing one."""
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def as_text(raw: pa.Array) -> pa.Array:
    """Convert bytes to text; invalid UTF-8 becomes replacement characters, as in OTLP's SDKs."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if b is None else b.decode(errors="replace") for b in raw.to_pylist())
        return pa.array(texts, pa.string())


def of_owners(values: pa.Array, owner: pa.Array) -> pa.Array:
    """Return the value of each record's resource or scope, shape [N], with each value only once.

    A request names a resource and a scope once for all of their spans. With a copy for each span, a
    request of a megabyte could take gigabytes.

    Args:
        values: Texts of resources or scopes, shape [M].
        owner: Index of the resource or scope of each record, shape [N].
    """
    distinct = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(owner), distinct.dictionary)


def offsets(sizes: np.ndarray) -> pa.Array:
    """Return where each list of these sizes, shape [N], begins and the last one ends: [N + 1]."""
    return from_numpy(np.concatenate(([0], np.cumsum(sizes))).astype(np.int32), pa.int32())


def from_numpy(numbers: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return numbers of this type as an Arrow array.

    `pa.array` would import `numpy.ma`, to ask whether they are masked: 0.02 CPU-seconds.
    """
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
