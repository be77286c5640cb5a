"""Large traces that were derived, kept so that spans which come late cost little.

A trace is derived as a whole, so a late span needs all other spans of its trace. Of a large trace
the rows that were read from each span are kept, and the rows that were last written. Then only the
late spans are read and parsed, and only the rows that they change are written.
"""

from collections import Counter
from collections.abc import Iterable

from otel_lightning.collector.derive.batches.copied_rows import copied, share_out
from otel_lightning.collector.derive.batches.rows_by_trace import Noted
from otel_lightning.collector.derive.batches.text_size import TextSize
from otel_lightning.collector.derive.parse import BY_SPAN, Reading
from otel_lightning.collector.derive.span_tree import Place, place_of

LARGE_SPANS = 1_000
"""A trace of fewer spans is read again, which is cheap."""
MOST_SPANS = 250_000
"""Maximum number of spans of the kept traces, each of which takes 1 to 2 KB. Above it the traces
that were kept first are dropped."""
MOST_TEXT = 64_000_000
"""Maximum number of characters of the kept messages. Above it traces are dropped, too."""


class LargeTraces:
    """What was read from the spans of large traces, and the rows that the store has of them."""

    def __init__(self, most_spans: int = MOST_SPANS, most_text: int = MOST_TEXT) -> None:
        """Begin without traces.

        Args:
            most_spans: Maximum number of spans of all kept traces.
            most_text: Maximum number of characters of their messages.
        """
        self._most_spans, self._most_text = most_spans, most_text
        self._found: dict[str, Reading] = {}
        """What each span says by itself, before `fold_requests`. Nobody changes these rows."""
        self._written: dict[str, Noted] = {}
        self._text = TextSize()

    def __len__(self) -> int:
        """Return the number of traces."""
        return len(self._found)

    def __contains__(self, trace_id: object) -> bool:
        """Tell whether a trace is kept."""
        return trace_id in self._found

    def spans(self, trace_id: str) -> int:
        """Return the number of spans of a kept trace."""
        return len(self._found[trace_id].nodes)

    def with_late(self, trace_id: str, late: Reading) -> Reading:
        """Return copies of all rows of a trace: the kept ones, and those of some of its spans.

        Args:
            trace_id: A kept trace.
            late: The rows of its new spans, and of those that are read again because log records
                came late. They are copied, too.
        """
        whole = copied(self._found[trace_id])
        _remove(whole, whole.nodes.keys() & late.nodes.keys())
        whole.add(copied(late))
        return whole

    def keep(self, trace_id: str, found: Reading) -> None:
        """Keep a trace that was read as a whole. Nobody may change `found` afterwards."""
        self.drop([trace_id])
        self._found[trace_id] = found
        self._text.add(found.calls)
        self._shorten()

    def add(self, trace_id: str, late: Reading) -> None:
        """Add the rows of late spans to a kept trace. Nobody may change `late` afterwards."""
        found = self._found.pop(trace_id)  # to be the last one
        if again := found.nodes.keys() & late.nodes.keys():
            self._text.remove(call for call in found.calls if place_of(call) in again)
            _remove(found, again)
        found.add(late)
        self._found[trace_id] = found
        self._text.add(late.calls)
        self._shorten()

    def drop(self, trace_ids: Iterable[str]) -> None:
        """Drop traces, which then have to be read as a whole."""
        for trace_id in trace_ids:
            self._written.pop(trace_id, None)
            if found := self._found.pop(trace_id, None):
                self._text.remove(found.calls)

    def clear(self) -> None:
        """Drop all traces."""
        self._found.clear()
        self._written.clear()
        self._text = TextSize()

    def written(self, trace_id: str) -> Noted | None:
        """Return the rows of a trace that the store has; None if they are not known."""
        return self._written.get(trace_id)

    def note_stored(self, trace_id: str, rows: Noted) -> None:
        """Note the rows of a trace that the store has."""
        if trace_id in self._found:
            self._written[trace_id] = rows

    def _shorten(self) -> None:
        spans = sum(map(self.spans, self._found))
        for trace_id in [*self._found]:
            if spans <= self._most_spans and self._text.size <= self._most_text:
                return
            spans -= self.spans(trace_id)
            self.drop([trace_id])


def large(found: Reading) -> dict[str, Reading]:
    """Return copies of the rows of each trace that is worth keeping and can be.

    Not that of a trace whose log records belong to other spans than those that they name: late ones
    would not be found by the spans that came with them.

    Args:
        found: Whole traces, as read from each span, before `fold_requests`.
    """
    counted = Counter(trace_id for trace_id, _ in found.nodes)
    own = {
        trace_id: Reading()
        for trace_id, count in counted.items()
        if count >= LARGE_SPANS and trace_id not in found.mixed
    }
    if own:
        share_out(found, own)
    return {trace_id: copied(some) for trace_id, some in own.items()}


def _remove(found: Reading, places: set[Place]) -> None:
    """Remove the rows of some spans. Their rewards and arms stay: they are read again, too."""
    if not places:
        return
    for name in ("calls", "tools", "requests", "agents", "retrievals"):
        rows = getattr(found, name)
        rows[:] = [row for row in rows if (row.trace_id, row.span_id) not in places]
    for name in BY_SPAN:
        values = getattr(found, name)
        for place in places:
            values.pop(place, None)
