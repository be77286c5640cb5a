"""Derived rows by the trace that they belong to."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from otel_lightning.collector.derive.rows import Derived

TABLES = ("llm_calls", "tool_calls", "agent_runs", "retrievals", "rewards", "arms")


def by_trace(derived: Derived, trace_ids: Collection[str]) -> dict[str, dict[str, list[Any]]]:
    """Return the rows of some traces, by trace and table."""
    found: dict[str, dict[str, list[Any]]] = {trace_id: {} for trace_id in trace_ids}
    for table in TABLES:
        for row in getattr(derived, table):
            if row.trace_id in found:
                found[row.trace_id].setdefault(table, []).append(row)
    for (trace_id, span_id), reason in derived.unread.items():
        if trace_id in found:
            found[trace_id].setdefault("unread", []).append((span_id, reason))
    return found


def only(derived: Derived, trace_ids: Collection[str]) -> Derived:
    """Return the rows of these traces."""
    return _chosen(derived, lambda trace_id: trace_id in trace_ids)


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
