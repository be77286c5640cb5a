"""Read only what came late of a large trace, and replace only the rows that it changes."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from otel_lightning.collector.derive.batches.batch import Batch
from otel_lightning.collector.derive.batches.parsed_traces import ParsedTraces
from otel_lightning.collector.derive.batches.rows_by_trace import KEYS, STORED_AS, Change, Key
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet
from otel_lightning.collector.refresh.stored_records import read_logs, stream_spans
from otel_lightning.collector.refresh.time_ranges.recent_traces import NOWHERE, recent_traces
from otel_lightning.collector.store import Sql, Store, quote_literal, statement

GROWN = 2
"""A trace that has this many times as many spans as are kept is read again: that is simpler,
and costs no more."""


def resume(
    store: Store, closed: ClosedSet, batch: Batch, parsed: ParsedTraces
) -> dict[str, pa.Table]:
    """Add to a batch the large traces of the frontier that are kept; read only what came late.

    Returns:
        The keys of these traces, by trace. A kept trace that does not fit the store is dropped.
    """
    kept_traces = [trace_id for trace_id in closed.frontier() if trace_id in parsed.large]
    if not kept_traces:
        return {}
    closed.choose_frontier()
    stale, recent = _stale(store, kept_traces), recent_traces(store)
    keys: dict[str, pa.Table] = {}
    for trace_id in kept_traces:
        keys_of_trace = None
        kept_spans = parsed.large.spans(trace_id)
        if trace_id not in stale:
            keys_of_trace = batch.resume(trace_id, (), None, kept_spans)
        elif (count := stale[trace_id]) and count < GROWN * kept_spans:
            since_ns = recent.late_since(trace_id)
            if since_ns is not None:
                late = _Late(store, trace_id, since_ns, recent.received_since([trace_id]))
                logs = late.logs()
                spans = late.spans(has_logs=bool(len(logs)))
                keys_of_trace = batch.resume(trace_id, spans, logs, count)
        if keys_of_trace is None:
            parsed.large.drop([trace_id])
        else:
            keys[trace_id] = keys_of_trace
    return keys


def _stale(store: Store, trace_ids: list[str]) -> Mapping[str, int]:
    """Return the number of stored spans of each of some traces that is stale; 0 if unknown."""
    names = ", ".join(map(quote_literal, trace_ids))
    select = f"SELECT id, spans FROM stale WHERE kind = 'trace' AND id IN ({names})"
    return {row["id"]: row["spans"] or 0 for row in store.rows(select)}


class _Late:
    """The spans and log records that came late of one trace."""

    def __init__(self, store: Store, trace_id: str, since_ns: int, received: Sql) -> None:
        self._store = store
        self._trace = f"trace_id = {quote_literal(trace_id)}"
        self._since, self._received = f"received_at >= make_timestamp_ns({since_ns})", received
        self._late = f"{self._since} AND {self._trace}"

    def logs(self) -> pa.Table:
        """Return the late log records, and those that name a span that is read."""
        late_or_named = f"({self._late}) OR span_id IN ({self._named()})"
        condition = Sql(f"{self._received} AND {self._trace} AND ({late_or_named})")
        return read_logs(self._store, condition)

    def spans(self, *, has_logs: bool) -> Iterator[pa.RecordBatch]:
        """Yield the late spans, and those that late log records name.

        Args:
            has_logs: Whether `logs` returned any.
        """
        if not has_logs:
            return stream_spans(self._store, Sql(self._trace), Sql(self._since))
        named = Sql(f"{self._trace} AND span_id IN ({self._named()})")
        return stream_spans(self._store, named, self._received)

    def _named(self) -> str:
        of_both = (f"SELECT span_id FROM {table} WHERE {self._late}" for table in ("spans", "logs"))
        return " UNION ALL ".join(of_both)


def replace_changed(store: Store, changes: Mapping[str, Change]) -> None:
    """Delete the rows of large traces that are gone, or that will be inserted again."""
    for trace_id, change in changes.items():
        since = recent_traces(store).rows_since([trace_id])
        for name, keys in change.gone.items():
            table, columns = STORED_AS.get(name, name), KEYS[name]
            if not keys or since[table] == NOWHERE:
                continue
            _note_gone(store, columns, keys)
            is_same_row = " AND ".join(
                f"gone.{one} IS NOT DISTINCT FROM {table}.{one}" for one in columns
            )
            values = {"table": Sql(table), "since": since[table], "same": Sql(is_same_row)}
            store.execute(statement(__package__, "delete_gone", trace=trace_id, **values))


def _note_gone(store: Store, columns: Sequence[str], keys: Sequence[Key]) -> None:
    """Fill the temporary table `gone`."""
    types = ", ".join(f"{column} VARCHAR" for column in columns)
    store.execute(f"CREATE OR REPLACE TEMP TABLE gone ({types})")
    values = [pa.array(one, pa.string()) for one in zip(*keys, strict=True)]
    store.insert("gone", pa.table(values, [*columns]))
