"""Limits on the length and the number of stored attributes.

A record with cut values gets the attribute `lightning.truncated`, a JSON list of their keys. A
record with dropped attributes gets `lightning.dropped_attributes`, their number.
"""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from otel_lightning.instrumentation.attributes import DROPPED_ATTRIBUTES, TRUNCATED


@dataclass(frozen=True, slots=True)
class Limits:
    """Most characters of a value, and most attributes of a record; None is no limit."""

    value_length: int | None = None
    attributes: int | None = None


NO_LIMITS = Limits()


class Pairs(NamedTuple):
    """The attributes of N records, concatenated; `sizes` has the number for each record."""

    keys: pa.Array
    values: pa.Array
    sizes: NDArray[np.int64]  # [N]


def limited(pairs: Pairs, limits: Limits) -> tuple[Pairs, NDArray[np.int64]]:
    """Cut long values, drop attributes above the limit, and mark both.

    Args:
        pairs: Keys, and values as text.
        limits: The limits.

    Returns:
        The remaining pairs with the marks, and the number of dropped attributes of each record,
        shape [N].
    """
    pairs, dropped = _fewer(pairs, limits.attributes)
    cut = _too_long(pairs.values, limits.value_length)
    marks = {
        record: [(DROPPED_ATTRIBUTES, str(dropped[record]))] for record in np.flatnonzero(dropped)
    }
    if len(cut):
        values = pairs.values.to_pylist()
        for record in cut:
            values[record] = values[record][: limits.value_length]
        for record, names in _by_owner(pairs, cut).items():
            marks.setdefault(record, []).append((TRUNCATED, json.dumps(names)))
        pairs = pairs._replace(values=pa.array(values, pa.string()))
    return (_marked(pairs, marks) if marks else pairs), dropped


def shortened(texts: pa.Array, limits: Limits) -> pa.Array:
    """Cut texts that have no attributes for a mark, such as the body of a log record."""
    if not len(_too_long(texts, limits.value_length)):
        return texts
    return pc.utf8_slice_codeunits(texts, 0, limits.value_length)


def _fewer(pairs: Pairs, limit: int | None) -> tuple[Pairs, NDArray[np.int64]]:
    if limit is None or not (pairs.sizes > limit).any():
        return pairs, np.zeros(len(pairs.sizes), np.int64)
    # The place of each record's first attribute.
    starts = np.cumsum(pairs.sizes) - pairs.sizes
    number = np.arange(pairs.sizes.sum()) - np.repeat(starts, pairs.sizes)  # within its record
    keep = pa.array(np.flatnonzero(number < limit))
    sizes = np.minimum(pairs.sizes, limit)
    return Pairs(pairs.keys.take(keep), pairs.values.take(keep), sizes), pairs.sizes - sizes


def _too_long(texts: pa.Array, length: int | None) -> NDArray[np.int64]:
    if length is None:
        return np.zeros(0, np.int64)
    long = pc.fill_null(pc.greater(pc.utf8_length(texts), length), fill_value=False)
    return np.flatnonzero(long.to_numpy(zero_copy_only=False))


def _by_owner(pairs: Pairs, places: NDArray[np.int64]) -> dict[Any, list[str]]:
    owners = np.repeat(np.arange(len(pairs.sizes)), pairs.sizes)[places]
    by_owner: dict[Any, list[str]] = {}
    for owner, name in zip(owners, pairs.keys.take(pa.array(places)).to_pylist(), strict=True):
        by_owner.setdefault(owner, []).append(name)
    return by_owner


def _marked(pairs: Pairs, marks: dict[Any, list[tuple[str, str]]]) -> Pairs:
    """Insert the marks, each behind the other attributes of its record."""
    ends = np.cumsum(pairs.sizes)
    inserted = [(owner, *mark) for owner in sorted(marks) for mark in marks[owner]]
    owners = np.array([owner for owner, _, _ in inserted])
    # Marks are appended to the arrays; `order` then moves each to the end of its record.
    order = np.insert(
        np.arange(len(pairs.keys)), ends[owners], len(pairs.keys) + np.arange(len(inserted))
    )
    places = pa.array(order)
    keys = pa.concat_arrays([pairs.keys, pa.array([key for _, key, _ in inserted], pa.string())])
    values = pa.concat_arrays(
        [pairs.values, pa.array([text for *_, text in inserted], pa.string())]
    )
    sizes = pairs.sizes + np.bincount(owners, minlength=len(pairs.sizes))
    return Pairs(keys.take(places), values.take(places), sizes)
