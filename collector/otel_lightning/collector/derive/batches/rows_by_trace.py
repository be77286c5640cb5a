"""Derived rows by the trace that they belong to."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, NamedTuple

from otel_lightning.collector.derive.rows import (
    AgentRun,
    Arm,
    Derived,
    LlmCall,
    Retrieval,
    Reward,
    ToolCall,
)

TABLES = ("llm_calls", "tool_calls", "agent_runs", "retrievals", "rewards", "arms")
UNREAD = "unread"
"""The name of `Derived.unread` among the tables; a row is (span id, reason)."""
STORED_AS = {"rewards": "reward_events", UNREAD: "unread_spans"}
"""The tables whose name in the store is another one."""
KEYS: dict[str, tuple[str, ...]] = {
    "llm_calls": ("span_id",),
    "tool_calls": ("span_id", "llm_span_id", "tool_call_id"),
    "agent_runs": ("span_id",),
    "retrievals": ("span_id",),
    "rewards": ("reward_id",),
    "arms": ("span_id", "key"),
    UNREAD: ("span_id",),
}
"""The columns by which the rows of one trace are told apart. Several rows may have one key: they
are replaced together."""
Rows = dict[str, list[Any]]
"""Derived rows of one trace by table."""
Key = tuple[str | None, ...]
RowsByKey = dict[str, dict[Key, Any]]
"""The values of the rows of one trace by table and key, in pairs if several rows have one key."""
_VALUES = {
    table: attrgetter(*(each.name for each in fields(row) if each.compare))
    for table, row in (
        ("llm_calls", LlmCall),
        ("tool_calls", ToolCall),
        ("agent_runs", AgentRun),
        ("retrievals", Retrieval),
        ("rewards", Reward),
        ("arms", Arm),
    )
}


class Change(NamedTuple):
    """How the rows of a trace differ from those that were written before."""

    new: Rows
    """Rows to insert."""
    same: Rows
    """Rows that the store has already."""
    gone: dict[str, list[Key]]
    """The keys of the rows to delete, by table; a new row may have the same key."""


def by_trace(derived: Derived, trace_ids: Collection[str]) -> dict[str, Rows]:
    """Return the rows of some traces, by trace and table."""
    rows: dict[str, Rows] = {trace_id: {} for trace_id in trace_ids}
    for table in TABLES:
        for row in getattr(derived, table):
            if row.trace_id in rows:
                rows[row.trace_id].setdefault(table, []).append(row)
    for (trace_id, span_id), reason in derived.unread.items():
        if trace_id in rows:
            rows[trace_id].setdefault(UNREAD, []).append((span_id, reason))
    return rows


def values_of(rows: Rows) -> Rows:
    """Return the values of the rows of one trace, which are compared faster than the rows."""
    return {
        table: own if table == UNREAD else [*map(_VALUES[table], own)]
        for table, own in rows.items()
    }


def rows_by_key(rows: Rows) -> RowsByKey:
    """Return the values of the rows of one trace by key, to compare other rows with them later."""
    by_table: RowsByKey = {}
    for table in KEYS:
        own = by_table[table] = {}
        for key, row in _keyed(table, rows):
            values = row if table == UNREAD else _VALUES[table](row)
            own[key] = values if key not in own else (own[key], values)
    return by_table


def change(before: RowsByKey, after: RowsByKey, rows: Rows) -> Change:
    """Compare the rows of one trace with those that were written before.

    Args:
        before: The rows that were written.
        after: The present rows.
        rows: The same rows.
    """
    changes = Change({}, {}, {})
    for table in KEYS:
        old, new = before[table], after[table]
        changed = {key for key, values in new.items() if old.get(key) != values}
        changes.gone[table] = [key for key in old if key in changed or key not in new]
        changes.new[table], changes.same[table] = [], []
        for key, row in _keyed(table, rows):
            (changes.new if key in changed else changes.same)[table].append(row)
    return changes


def _keyed(table: str, rows: Rows) -> Iterator[tuple[Key, Any]]:
    own = rows.get(table, [])
    if table == UNREAD:
        return (((span_id,), (span_id, reason)) for span_id, reason in own)
    values: Iterator[Any] = map(attrgetter(*KEYS[table]), own)
    if len(KEYS[table]) == 1:
        return (((value,), row) for value, row in zip(values, own, strict=True))
    return zip(values, own, strict=True)


def with_rows(derived: Derived, trace_id: str, rows: Rows) -> Derived:
    """Return the same rows, and some more of one trace."""
    more: dict[str, Any] = {
        table: [*getattr(derived, table), *rows[table]] for table in TABLES if rows.get(table)
    }
    unread = {(trace_id, span_id): reason for span_id, reason in rows.get(UNREAD, ())}
    return replace(derived, **more, unread={**derived.unread, **unread})


def only(derived: Derived, trace_ids: Collection[str]) -> Derived:
    """Return the rows of these traces."""
    return _chosen(derived, lambda trace_id: trace_id in trace_ids)


def only_tables(derived: Derived, tables: Collection[str]) -> Derived:
    """Return the rows of these tables, which are named as in the store."""
    left_out: dict[str, Any] = {
        table: [] for table in TABLES if STORED_AS.get(table, table) not in tables
    }
    unread = derived.unread if STORED_AS[UNREAD] in tables else {}
    return replace(derived, **left_out, unread=unread)


def without(derived: Derived, trace_ids: Collection[str]) -> Derived:
    """Return the rows of all other traces."""
    return _chosen(derived, lambda trace_id: trace_id not in trace_ids) if trace_ids else derived


def _chosen(derived: Derived, is_wanted: Callable[[str | None], bool]) -> Derived:
    rows: dict[str, Any] = {
        table: [row for row in getattr(derived, table) if is_wanted(row.trace_id)]
        for table in TABLES
    }
    unread = {place: reason for place, reason in derived.unread.items() if is_wanted(place[0])}
    return replace(derived, **rows, unread=unread)
