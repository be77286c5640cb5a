"""Read traces of which some break deriving: only after a batch failed, because it costs twice."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import pyarrow as pa

from otel_lightning.collector.derive import to_arrow
from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.links import ties
from otel_lightning.collector.derive.parse import Reading, fold_requests, read
from otel_lightning.collector.derive.rows import Log, Span
from otel_lightning.collector.derive.text.message_memory import MessageMemory


def read_sound(
    spans: Iterable[Span],
    logs: Iterable[Log],
    memory: MessageMemory,
    schemas: Mapping[str, pa.Schema],
) -> Reading:
    """Read the traces that can be derived alone; all spans of the others are `unread`.

    Args:
        spans: The spans of whole traces.
        logs: The log records that name these traces.
        memory: The memory of the spans.
        schemas: The columns of each table of `to_arrow.TABLES`.
    """
    by_trace: dict[str, list[Span]] = defaultdict(list)
    by_name: dict[str, list[Log]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    for log in logs:
        by_name[log.trace_id or ""].append(log)
    broken = {
        trace_id: reason
        for trace_id, own in by_trace.items()
        if (reason := _failure(own, by_name[trace_id], schemas))
    }
    found = read(
        (span for name, own in by_trace.items() if name not in broken for span in own),
        (log for name, own in by_name.items() if name not in broken for log in own),
        memory,
    )
    for trace_id, reason in broken.items():
        found.unread |= {(trace_id, span.span_id): reason for span in by_trace[trace_id]}
    return found


def _failure(spans: list[Span], logs: list[Log], schemas: Mapping[str, pa.Schema]) -> str | None:
    """Return the error that deriving a trace alone raises, or None."""
    try:
        some = read([span._replace(memory=None) for span in spans], logs)
        fold_requests(some)
        ties(some)
        for _ in to_arrow.tables(derive(spans, logs), schemas):
            pass
    except Exception as error:  # noqa: BLE001 - one odd trace must not cost the others
        return f"{type(error).__name__}: {error}"
    return None
