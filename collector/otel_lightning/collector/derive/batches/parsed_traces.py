"""Parsed traces of rollouts that grow, kept for the next batches.

A rollout is derived as a whole, so each new turn of a conversation needs all earlier ones. Their
spans do not change, so they are parsed once and not once for each turn.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from otel_lightning.collector.derive.batches.copied_rows import copied, share_out
from otel_lightning.collector.derive.batches.large_traces import MOST_TEXT, LargeTraces
from otel_lightning.collector.derive.batches.rows_by_trace import Rows
from otel_lightning.collector.derive.batches.text_size import TextSize
from otel_lightning.collector.derive.links import Ties
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.parse import ParsedRows


class _Entry(NamedTuple):
    parsed: ParsedRows
    ties: Ties


class ParsedTraces:
    """The parsed rows of each trace, kept as long as its spans stay the same."""

    def __init__(self, most_text: int = MOST_TEXT) -> None:
        """Begin without traces.

        Args:
            most_text: Maximum number of characters of the kept messages.
        """
        self._most_text = most_text
        self._entries: dict[str, _Entry] = {}
        self._written: dict[str, Rows] = {}
        self._text = TextSize()
        self.large = LargeTraces(most_text=most_text)
        """The large traces, whether their rollouts grow or not."""
        self.memory = MessageMemory()
        """The messages that the kept traces share with those read later."""

    def __len__(self) -> int:
        """Return the number of traces that are not large."""
        return len(self._entries)

    @property
    def is_empty(self) -> bool:
        """Whether no trace is kept."""
        return not self._entries and not len(self.large)

    def __contains__(self, trace_id: object) -> bool:
        """Return whether a trace is kept."""
        return trace_id in self._entries

    def of(self, trace_ids: Iterable[str]) -> tuple[ParsedRows, Ties]:
        """Return the parsed rows of traces, as copies that may be changed, and their keys.

        Raises:
            KeyError: If one of them is not kept.
        """
        parsed, tied = ParsedRows(), Ties([], [], [])
        entries = [self._entries[trace_id] for trace_id in trace_ids]
        parsed.add(*(entry.parsed for entry in entries))
        for entry in entries:
            tied.add(entry.ties)
        return copied(parsed), tied

    def drop(self, trace_ids: Iterable[str]) -> None:
        """Drop traces that are read again, because they have new spans."""
        for trace_id in trace_ids:
            entry = self._entries.pop(trace_id, None)
            self._written.pop(trace_id, None)
            if entry is not None:
                self._text.remove(entry.parsed.calls)

    def clear(self) -> None:
        """Drop all traces."""
        self._clear_small()
        self.large.clear()

    def _clear_small(self) -> None:
        self._entries.clear()
        self._written.clear()
        self._text = TextSize()

    def keep(self, parsed: ParsedRows, tied: Ties, trace_ids: Iterable[str]) -> None:
        """Keep the parsed rows of some traces; drop all of them if their text becomes too much.

        Args:
            parsed: The parsed rows of these traces, and perhaps of others. Nobody may change them
                afterwards: pass copies (`copied`) if the rows are used further.
            tied: The keys of all traces of `parsed`.
            trace_ids: The traces to keep.
        """
        own = {trace_id: _Entry(ParsedRows(), Ties([], [], [])) for trace_id in trace_ids}
        share_out(parsed, {trace_id: entry.parsed for trace_id, entry in own.items()})
        for trace_id, key, seeks in zip(*tied, strict=True):
            if (entry := own.get(trace_id)) is not None:
                traces, keys, sought = entry.ties
                traces.append(trace_id)
                keys.append(key)
                sought.append(seeks)
        self.drop(own)
        self._entries.update(own)
        for entry in own.values():
            self._text.add(entry.parsed.calls)
        if self._text.size > self._most_text:
            self._clear_small()

    def unchanged(self, rows: Mapping[str, Rows]) -> set[str]:
        """Return the traces whose derived rows equal those that were last written to the store."""
        return {trace_id for trace_id, own in rows.items() if self._written.get(trace_id) == own}

    def note_stored(self, rows: Mapping[str, Rows]) -> None:
        """Note the derived rows of traces that the store has."""
        self._written.update((one, own) for one, own in rows.items() if one in self._entries)
