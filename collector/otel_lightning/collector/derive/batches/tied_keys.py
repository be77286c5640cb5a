"""The keys of traces that were just read, as numbers.

A key is stored as 64 bits of its hash, which take less room than its text.
"""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import md5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
TIES_ALL = ("rollout:", "conversation:")
"""Prefixes of the keys that tie all their traces, however many these are: all traces of a stated
rollout or conversation belong together."""


@dataclass(frozen=True, slots=True)
class TiedKeys:
    """The keys of some traces."""

    rows: pa.Table
    """`trace_id`, `key` (a key of the trace), `seeks` (the key of the traces that it belongs with:
    mostly the same one), and `ties_all` (whether `seeks` ties all its traces, however many)."""

    @classmethod
    def of(cls, ties: pa.Table) -> "TiedKeys":
        """Hash the keys that `Batch.read` returns as texts: `trace_id`, `key` and `seeks`."""
        own = seeks = hashed(ties["key"])
        differs = pc.not_equal(ties["key"], ties["seeks"])
        if pc.any(differs).as_py():
            seeks = own.copy()
            seeks[differs.to_numpy()] = hashed(ties["seeks"].filter(differs))
        ties_all = pc.or_(*(pc.starts_with(ties["seeks"], text) for text in TIES_ALL))
        columns = {"key": own, "seeks": seeks, "ties_all": ties_all}
        return cls(pa.table({"trace_id": ties["trace_id"], **columns}))

    def own_of(self, trace_ids: Collection[str]) -> pa.Table:
        """Return the own keys of some of these traces, each once: `trace_id` and `key`."""
        rows = self.rows.select(["trace_id", "key"])
        rows = rows.filter(pc.is_in(rows["trace_id"], pa.array(trace_ids, pa.string())))
        return rows.group_by(rows.column_names, use_threads=False).aggregate([])

    def sought_keys(self) -> Keys:
        """Return the keys that traces look for, each once."""
        return np.unique(numbers(self.rows["seeks"]))

    def sought_keys_by_trace(self) -> pa.Table:
        """Return the sought keys with the traces that look for them: `trace_id` and `key`."""
        return self.rows.select(["trace_id", "seeks"]).rename_columns(["trace_id", "key"])

    def ties_all(self) -> Keys:
        """Return the sought keys that tie all their traces, however many these are."""
        return numbers(self.rows["seeks"].filter(self.rows["ties_all"]))


def hashed(texts: pa.ChunkedArray) -> Keys:
    """Return the lower half of the MD5 of each text, as DuckDB's `md5_number_lower` does.

    The calls of a conversation name many keys several times, so each text is hashed once.
    """
    coded = texts.combine_chunks().dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    digests = [md5(text.encode(), usedforsecurity=False).digest() for text in distinct]
    numbers: Keys = np.frombuffer(b"".join(digests), "<u8")[1::2]
    places: NDArray[np.int32] = coded.indices.to_numpy()
    return numbers[places]


def numbers(column: pa.Array | pa.ChunkedArray) -> Keys:
    """Return a column of keys, shape [N], as an array."""
    values: Keys = column.to_numpy()
    return values
