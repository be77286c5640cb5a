"""Parsed traces of rollouts that grow, kept for the next batches.

A rollout is derived as a whole, so each new turn of a conversation needs all earlier ones. Their
spans do not change, so they are parsed once and not once for each turn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from otel_lightning.collector.derive.links import Ties
from otel_lightning.collector.derive.parse import Reading
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Arm,
    LlmCall,
    Message,
    Retrieval,
    Reward,
    ToolCall,
)
from otel_lightning.collector.derive.text.message_memory import MessageMemory, length

MOST_TEXT = 64_000_000
"""Maximum number of characters of the kept messages. Above it everything is dropped."""
R = TypeVar("R")
Rows = dict[str, list[Any]]
"""Derived rows of one trace by table."""


class _Kept(NamedTuple):
    found: Reading
    ties: Ties


class ParsedTraces:
    """The parsed rows of each trace, kept as long as its spans stay the same."""

    def __init__(self, most_text: int = MOST_TEXT) -> None:
        """Begin without traces.

        Args:
            most_text: Maximum number of characters of the kept messages.
        """
        self._most_text = most_text
        self._kept: dict[str, _Kept] = {}
        self._written: dict[str, Rows] = {}
        self._text = _TextSize()
        self.memory = MessageMemory()
        """The messages that the kept traces share with those read later."""

    def __len__(self) -> int:
        """Return the number of traces."""
        return len(self._kept)

    def __contains__(self, trace_id: object) -> bool:
        """Tell whether a trace is kept."""
        return trace_id in self._kept

    def of(self, trace_id: str) -> tuple[Reading, Ties]:
        """Return the parsed rows of a trace, as copies that may be changed, and its keys."""
        kept = self._kept[trace_id]
        return copied(kept.found), kept.ties

    def drop(self, trace_ids: Iterable[str]) -> None:
        """Drop traces that are read again, because they have new spans."""
        for trace_id in trace_ids:
            kept = self._kept.pop(trace_id, None)
            self._written.pop(trace_id, None)
            if kept is not None:
                self._text.remove(kept.found.calls)

    def clear(self) -> None:
        """Drop all traces."""
        self._kept.clear()
        self._written.clear()
        self._text = _TextSize()

    def keep(self, found: Reading, tied: Ties, trace_ids: Iterable[str]) -> None:
        """Keep the parsed rows of some traces; drop all traces if their text becomes too much.

        Args:
            found: The parsed rows of these traces, and perhaps of others. Nobody may change them
                afterwards: pass copies (`copied`) if the rows are used further.
            tied: The keys of all traces of `found`.
            trace_ids: The traces to keep.
        """
        own = {trace_id: _Kept(Reading(), Ties([], [], [])) for trace_id in trace_ids}
        _share_out(found, {trace_id: kept.found for trace_id, kept in own.items()})
        # `Ties` has three columns: trace id, key of the trace, and the key that it seeks.
        for row in zip(*tied, strict=True):
            if row[0] in own:
                for column, value in zip(own[row[0]].ties, row, strict=True):
                    column.append(value)
        self.drop(own)
        self._kept.update(own)
        for kept in own.values():
            self._text.add(kept.found.calls)
        if self._text.size > self._most_text:
            self.clear()

    def unchanged(self, rows: Mapping[str, Rows]) -> set[str]:
        """Return the traces whose derived rows equal those that were last written to the store."""
        return {trace_id for trace_id, own in rows.items() if self._written.get(trace_id) == own}

    def wrote(self, rows: Mapping[str, Rows]) -> None:
        """Note the derived rows of traces. Call it when they are committed."""
        self._written.update((one, own) for one, own in rows.items() if one in self._kept)


class _TextSize:
    """Number of characters of the messages of some calls.

    Several calls may share one message object. It counts once, from the first call added with it
    until the last such call is removed.
    """

    def __init__(self) -> None:
        self.size = 0
        """Number of characters."""
        self._uses: dict[int, int] = {}
        """How many added calls have each message, by the message's `id()`. As long as one has it,
        the object lives, so no other object gets this `id()`."""

    def add(self, calls: Iterable[LlmCall]) -> None:
        """Count the messages of calls."""
        for call in calls:
            self.size += _packed_size(call)
            for message in _messages(call):
                uses = self._uses.get(id(message), 0)
                if not uses:
                    self.size += length(message)
                self._uses[id(message)] = uses + 1

    def remove(self, calls: Iterable[LlmCall]) -> None:
        """Stop counting the messages of calls that were added before."""
        for call in calls:
            self.size -= _packed_size(call)
            for message in _messages(call):
                uses = self._uses.pop(id(message)) - 1
                if uses:
                    self._uses[id(message)] = uses
                else:
                    self.size -= length(message)


def _packed_size(call: LlmCall) -> int:
    return sum(len(text or b"") for text in call.packed or ())


def _messages(call: LlmCall) -> Iterator[Message]:
    yield from call.input_messages or ()
    yield from call.output_messages or ()


def _share_out(found: Reading, own: dict[str, Reading]) -> None:
    """Add each row of `found` to the reading of its trace, if it is one of `own`."""
    # Not `requests`: `fold_requests` has emptied that list.
    for name in ("calls", "tools", "agents", "retrievals", "arms"):
        for row in getattr(found, name):
            if row.trace_id in own:
                getattr(own[row.trace_id], name).append(row)
    for name in ("nodes", "unread", "pasts"):
        for place, value in getattr(found, name).items():
            if place[0] in own:
                getattr(own[place[0]], name)[place] = value
    for reward_id, trace_id in found.sources.items():
        if trace_id in own:
            own[trace_id].rewards[reward_id] = found.rewards[reward_id]
            own[trace_id].sources[reward_id] = trace_id


def copied(found: Reading) -> Reading:
    """Copy a reading and its rows: `put_together` changes the rows that it is given in place."""
    return Reading(
        nodes=dict(found.nodes),
        calls=_copies(LlmCall, found.calls),
        tools=_copies(ToolCall, found.tools),
        agents=_copies(AgentRun, found.agents),
        retrievals=_copies(Retrieval, found.retrievals),
        rewards=dict(zip(found.rewards, _copies(Reward, found.rewards.values()), strict=True)),
        sources=dict(found.sources),
        arms=_copies(Arm, found.arms),
        unread=dict(found.unread),
        pasts=dict(found.pasts),
    )


def _values(row: type) -> Callable[[object], tuple[Any, ...]]:
    return attrgetter(*(each.name for each in fields(row)))


_VALUES: dict[type, Callable[[object], tuple[Any, ...]]] = {
    row: _values(row) for row in (LlmCall, ToolCall, AgentRun, Retrieval, Reward, Arm)
}


def _copies(kind: type[R], rows: Iterable[R]) -> list[R]:
    return [kind(*values) for values in map(_VALUES[kind], rows)]
