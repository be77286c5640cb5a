"""The keys of traces that were just read, as numbers.

A key is stored as 64 bits of its hash, which take less room than its text.
"""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import md5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from otel_lightning.collector.refresh.time_ranges.key_ranges import Keys

TIES_ALL = ("rollout:", "conversation:")
"""How the texts of keys begin that tie all their traces, however many these are: all traces of a
stated rollout or conversation belong together."""


@dataclass(frozen=True, slots=True)
class TiedKeys:
    """The keys of some traces. The columns have equal lengths."""

    trace_id: pa.ChunkedArray
    own: Keys
    """A key of the trace."""
    sought: Keys
    """The key of the traces that it belongs with: mostly the same one."""
    seeks: pa.ChunkedArray
    """The text of `sought`."""

    @classmethod
    def of(cls, tied: pa.Table) -> "TiedKeys":
        """Read what `Batch.read` returns: the columns `trace_id`, `key` and `seeks`."""
        own = hashed(tied["key"])
        sought = own
        differs = pc.not_equal(tied["key"], tied["seeks"])
        if pc.any(differs).as_py():
            sought = own.copy()
            sought[differs.to_numpy()] = hashed(tied["seeks"].filter(differs))
        return cls(tied["trace_id"], own, sought, tied["seeks"])

    def own_of(self, trace_ids: Collection[str]) -> pa.Table:
        """Return the own keys of some of these traces, each once: `trace_id` and `key`."""
        rows = pa.table({"trace_id": self.trace_id, "key": self.own})
        rows = rows.filter(pc.is_in(self.trace_id, pa.array(trace_ids, pa.string())))
        return rows.group_by(rows.column_names, use_threads=False).aggregate([])

    def sought_by(self) -> pa.Table:
        """Return the sought keys with the traces that look for them: `trace_id` and `key`."""
        return pa.table({"trace_id": self.trace_id, "key": self.sought})

    def ties_all(self) -> Keys:
        """Return the sought keys that tie all their traces, however many these are."""
        begin = [pc.starts_with(self.seeks, text) for text in TIES_ALL]
        found: Keys = self.sought[pc.or_(*begin).to_numpy()]
        return found


def hashed(texts: pa.ChunkedArray) -> Keys:
    """Return the lower half of the MD5 of each text, as DuckDB's `md5_number_lower` does."""
    digests = [md5(text.encode(), usedforsecurity=False).digest() for text in texts.to_pylist()]
    return np.frombuffer(b"".join(digests), "<u8")[1::2]
