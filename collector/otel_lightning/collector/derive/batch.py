"""Derive one batch of traces: Arrow in, Arrow out.

It uses no store and no global state but caches, so it runs in any process: the one that holds the
store, a worker, a job on a cluster.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from otel_lightning.collector.derive import from_arrow, to_arrow
from otel_lightning.collector.derive.assemble import put_together
from otel_lightning.collector.derive.links import Ties, ties
from otel_lightning.collector.derive.parse import Reading, fold_requests, read
from otel_lightning.collector.derive.text import repeated

TIES = pa.schema([(name, pa.string()) for name in Ties._fields])


class Batch:
    """Traces that are derived together.

    Call `read` for some traces. It returns their keys, which lead to further traces of the same
    closed set; call it for those too. When no key leads to another trace, call `tables`.
    """

    def __init__(self) -> None:
        """Begin without traces."""
        self._found = Reading()
        self.calls: Counter[str] = Counter()
        """Number of model calls by rollout id, once the first of `tables` was asked for."""

    def read(self, spans: Iterable[pa.RecordBatch], logs: pa.Table) -> pa.Table:
        """Read whole traces.

        Args:
            spans: Their spans, with the columns of `refresh/sql/spans.sql`.
            logs: The log records that name these traces, with the columns of
                `refresh/sql/logs.sql`.

        Returns:
            The keys that tie these traces to others: the columns `trace_id`, `key` and `seeks`, the
            key of the traces that it belongs with.
        """
        some = read(from_arrow.spans(spans), from_arrow.logs(logs))
        fold_requests(some)
        tied = ties(some)
        self._found.add(some)
        return pa.Table.from_arrays([pa.array(one, pa.string()) for one in tied], schema=TIES)

    def tables(self, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the derived rows of all traces that were read: a table's name and some of its rows.

        Args:
            schemas: The columns of each table of `to_arrow.TABLES`.
        """
        derived = put_together(self._found)
        self.calls = Counter(call.rollout_id or "" for call in derived.llm_calls)
        yield from to_arrow.tables(derived, schemas)

    @staticmethod
    def forget() -> None:
        """Free the memory of the messages that several traces share."""
        repeated.forget()
