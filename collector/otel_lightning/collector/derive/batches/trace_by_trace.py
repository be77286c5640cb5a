"""Find the traces that break deriving, by deriving each alone.

Each trace is parsed and derived twice, so this is used only after a batch has failed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import pyarrow as pa

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.batches import to_arrow
from otel_lightning.collector.derive.links import ties
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.parse import ParsedRows, complete_calls, read
from otel_lightning.collector.derive.rows import Log, Span, described


def read_derivable(
    spans: Iterable[Span],
    logs: Iterable[Log],
    memory: MessageMemory,
    schemas: Mapping[str, pa.Schema],
) -> ParsedRows:
    """Read the traces that can be derived alone; note all spans of the others as `unread`.

    Args:
        spans: The spans of whole traces.
        logs: The log records that name these traces.
        memory: Shares equal messages between calls, as in `read`.
        schemas: The columns of each of `derive.tables.TABLES`.
    """
    spans_of: dict[str, list[Span]] = defaultdict(list)
    logs_of: dict[str, list[Log]] = defaultdict(list)
    for span in spans:
        spans_of[span.trace_id].append(span)
    for log in logs:
        logs_of[log.trace_id or ""].append(log)
    broken = {
        trace_id: reason
        for trace_id, own in spans_of.items()
        if (reason := _failure(own, logs_of[trace_id], schemas))
    }
    parsed = read(
        (span for trace_id, own in spans_of.items() if trace_id not in broken for span in own),
        (log for trace_id, own in logs_of.items() if trace_id not in broken for log in own),
        memory,
    )
    for trace_id, reason in broken.items():
        parsed.unread |= {(trace_id, span.span_id): reason for span in spans_of[trace_id]}
    return parsed


def _failure(spans: list[Span], logs: list[Log], schemas: Mapping[str, pa.Schema]) -> str | None:
    """Return the error that deriving a trace alone raises, or None."""
    try:
        # As `Batch.read` does: `derive` computes no ties, and these may fail too.
        some = read([span._replace(memory=None) for span in spans], logs)
        complete_calls(some)
        ties(some)
        for _ in to_arrow.tables(derive(spans, logs), schemas):
            pass
    except Exception as error:  # noqa: BLE001 - one odd trace must not cost the others
        return described(error)
    return None
