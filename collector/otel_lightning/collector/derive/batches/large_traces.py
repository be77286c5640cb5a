"""Large traces that were derived, kept so that spans which come late cost little.

A trace is derived as a whole, so a late span needs all other spans of its trace. For a large trace,
the rows that were read from each span are kept in memory, with the rows that were last written.
Then only the late spans are read and parsed, and only the rows that they change are written.
"""

from collections.abc import Iterable

from otel_lightning.collector.derive.batches.copied_rows import copied, share_out
from otel_lightning.collector.derive.batches.rows_by_trace import RowsByKey
from otel_lightning.collector.derive.batches.text_size import TextSize
from otel_lightning.collector.derive.parse import BY_SPAN, ParsedRows
from otel_lightning.collector.derive.span_tree import Place, place_of

LARGE_SPANS = 1_000
"""A trace of fewer spans is read again, which is cheap."""
MOST_SPANS = 250_000
"""Maximum number of spans of the kept traces, each of which takes 1 to 2 KB. Above it the traces
that were kept first are dropped."""
MOST_TEXT = 64_000_000
"""Maximum number of characters of the kept messages. Above it traces are dropped, too."""


class LargeTraces:
    """A cache of the parsed rows of large traces, and of the rows that the store has of them."""

    def __init__(self, most_spans: int = MOST_SPANS, most_text: int = MOST_TEXT) -> None:
        """Begin without traces.

        Args:
            most_spans: Maximum number of spans of all kept traces.
            most_text: Maximum number of characters of their messages.
        """
        self._most_spans, self._most_text = most_spans, most_text
        self._parsed: dict[str, ParsedRows] = {}
        """The rows as parsed span by span, before `complete_calls`. Nobody changes them."""
        self._written: dict[str, RowsByKey] = {}
        self._text = TextSize()

    def __len__(self) -> int:
        """Return the number of traces."""
        return len(self._parsed)

    def __contains__(self, trace_id: object) -> bool:
        """Return whether a trace is kept."""
        return trace_id in self._parsed

    def spans(self, trace_id: str) -> int:
        """Return the number of spans of a kept trace."""
        return len(self._parsed[trace_id].nodes)

    def with_late(self, trace_id: str, late: ParsedRows) -> ParsedRows:
        """Return copies of all rows of a trace: the kept ones, and those of some of its spans.

        Args:
            trace_id: A kept trace.
            late: The rows of its new spans, and of those that are read again because log records
                came late. They are copied, too.
        """
        whole = copied(self._parsed[trace_id])
        _remove(whole, whole.nodes.keys() & late.nodes.keys())
        whole.add(copied(late))
        return whole

    def keep(self, trace_id: str, parsed: ParsedRows) -> None:
        """Keep a trace that was read as a whole. Nobody may change `parsed` afterwards."""
        self.drop([trace_id])
        self._parsed[trace_id] = parsed
        self._text.add(parsed.calls)
        self._shorten()

    def add(self, trace_id: str, late: ParsedRows) -> None:
        """Add the rows of late spans to a kept trace. Nobody may change `late` afterwards."""
        parsed = self._parsed.pop(trace_id)  # to be the last one
        if again := parsed.nodes.keys() & late.nodes.keys():
            self._text.remove(call for call in parsed.calls if place_of(call) in again)
            _remove(parsed, again)
        parsed.add(late)
        self._parsed[trace_id] = parsed
        self._text.add(late.calls)
        self._shorten()

    def drop(self, trace_ids: Iterable[str]) -> None:
        """Drop traces, which then have to be read as a whole."""
        for trace_id in trace_ids:
            self._written.pop(trace_id, None)
            if parsed := self._parsed.pop(trace_id, None):
                self._text.remove(parsed.calls)

    def clear(self) -> None:
        """Drop all traces."""
        self._parsed.clear()
        self._written.clear()
        self._text = TextSize()

    def written(self, trace_id: str) -> RowsByKey | None:
        """Return the rows of a trace that the store has; None if they are not known."""
        return self._written.get(trace_id)

    def note_stored(self, trace_id: str, rows: RowsByKey) -> None:
        """Note the rows of a trace that the store has."""
        if trace_id in self._parsed:
            self._written[trace_id] = rows

    def _shorten(self) -> None:
        spans = sum(map(self.spans, self._parsed))
        for trace_id in [*self._parsed]:
            if spans <= self._most_spans and self._text.size <= self._most_text:
                return
            spans -= self.spans(trace_id)
            self.drop([trace_id])


def large(parsed: ParsedRows) -> dict[str, ParsedRows]:
    """Return copies of the rows of each trace that is large enough to keep, and that can be kept.

    A trace cannot be kept if its log records belong to other spans than those that they name: log
    records that come late would not be found by the spans that came with them.

    Args:
        parsed: Whole traces, as read from each span, before `complete_calls`.
    """
    counted = parsed.spans_by_trace()
    own = {
        trace_id: ParsedRows()
        for trace_id, count in counted.items()
        if count >= LARGE_SPANS and trace_id not in parsed.mixed
    }
    if own:
        share_out(parsed, own)
    return {trace_id: copied(some) for trace_id, some in own.items()}


def _remove(parsed: ParsedRows, places: set[Place]) -> None:
    """Remove the rows of some spans. Their rewards and arms stay: they are read again, too."""
    if not places:
        return
    for name in ("calls", "tools", "requests", "agents", "retrievals"):
        rows = getattr(parsed, name)
        rows[:] = [row for row in rows if (row.trace_id, row.span_id) not in places]
    for name in BY_SPAN:
        values = getattr(parsed, name)
        for place in places:
            values.pop(place, None)
