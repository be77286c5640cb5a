"""Keep the derived tables current: what is stale, the traces that it changes, their rows.

A new span can change more than its own trace: a conversation's other turns, a message history that
it continues. `trace_keys` holds what ties traces together; following the keys gives a closed set of
traces, whose rows are derived anew and replace the old ones in one transaction. So the tables do
not depend on the order in which anything arrived.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from otel_lightning.collector.derive import derive, trace_keys
from otel_lightning.collector.records import Derived, Event, Log, Span
from otel_lightning.collector.store import Store, quote_literal

TRACES_AT_ONCE = 2_000
JSON_COLUMNS = {
    "request_params",
    "tool_definitions",
    "input_messages",
    "output_messages",
    "arguments",
    "result",
}
PER_TRACE = ("llm_calls", "tool_calls", "agent_runs", "arms", "reward_events", "unread_spans")

SPANS = """
    SELECT trace_id, span_id, parent_span_id, name, kind, epoch_ns(start_time) AS start_ns,
        epoch_ns(end_time) AS end_ns, status_code, status_message, scope_name, scope_version,
        resource, attributes,
        list_transform(events, lambda e: {'name': e.name, 'time_ns': epoch_ns(e."time"),
            'attributes': e.attributes}) AS events,
        list_transform(links, lambda l: l.trace_id) AS links
    FROM spans WHERE trace_id IN (SELECT trace_id FROM changed)
"""
LOGS = """
    SELECT epoch_ns(coalesce("time", observed_time)) AS time_ns, trace_id, span_id, event_name,
        body, attributes, resource, scope_name
    FROM logs WHERE {which} ORDER BY rowid  -- as received: messages of one instant keep their order
"""


def refresh(store: Store, at_once: int = TRACES_AT_ONCE) -> int:
    """Bring the derived tables up to date with some of what is stale.

    Returns:
        How many stale traces and log records were dealt with; 0 when nothing is stale.
    """
    query = f"SELECT DISTINCT kind, id FROM stale ORDER BY kind, id LIMIT {at_once}"
    stale = store.query(query).to_pylist()
    traces = [row["id"] for row in stale if row["kind"] == "trace"]
    loose = [row["id"] for row in stale if row["kind"] == "log"]
    if traces:
        _refresh_traces(store, traces)
    if loose:
        _refresh_loose_logs(store, loose)
    return len(stale)


def rebuild(store: Store) -> None:
    """Empty the derived tables and mark all that was received as stale."""
    tables = (*PER_TRACE, "rollout_tasks", "trace_keys", "stale")
    deletes = "".join(f"DELETE FROM {table};" for table in tables)
    store.execute(f"""
        BEGIN;
        {deletes}
        INSERT INTO stale SELECT DISTINCT 'trace', trace_id FROM spans;
        INSERT INTO stale SELECT DISTINCT if(trace_id IS NULL, 'log', 'trace'),
            coalesce(trace_id, log_id) FROM logs;
        COMMIT
    """)


def _refresh_traces(store: Store, traces: Sequence[str]) -> None:
    with store.transaction():
        _name_changed(store, traces)
        _replace_keys(store)
        _follow_keys(store)
        derived = derive(_spans(store), _logs(store))
        changed = "trace_id IN (SELECT trace_id FROM changed)"
        for table in PER_TRACE:
            store.execute(f"DELETE FROM {table} WHERE {changed}")
        _insert(store, derived)
        store.execute(
            "DELETE FROM stale WHERE kind = 'trace' AND id IN (SELECT trace_id FROM changed);"
            "DROP TABLE changed"
        )


def _refresh_loose_logs(store: Store, log_ids: Sequence[str]) -> None:
    ids = f"({_quoted(log_ids)})"
    rows = store.query(LOGS.format(which=f"log_id IN {ids}")).to_pylist()
    derived = derive([], [_log(row) for row in rows])
    with store.transaction():
        known = _quoted(reward.reward_id for reward in derived.rewards) or "''"
        store.execute(f"DELETE FROM reward_events WHERE reward_id IN ({known})")
        _insert(store, derived)
        store.execute(f"DELETE FROM stale WHERE kind = 'log' AND id IN {ids}")


def _name_changed(store: Store, traces: Sequence[str]) -> None:
    values = ",".join(f"({quote_literal(trace)})" for trace in traces)
    store.execute(f"CREATE TEMP TABLE changed AS FROM (VALUES {values}) t(trace_id)")


def _replace_keys(store: Store) -> None:
    spans, logs = _by_trace(_spans(store)), _by_trace(_logs(store))
    rows = [
        {"trace_id": trace, "key": key}
        for trace in spans.keys() | logs.keys()
        for key in sorted(trace_keys(spans[trace], logs[trace]))
    ]
    store.execute("DELETE FROM trace_keys WHERE trace_id IN (SELECT trace_id FROM changed)")
    if rows:
        store.insert("trace_keys", pa.Table.from_pylist(rows))


def _follow_keys(store: Store) -> None:
    """Add to `changed` every trace that a chain of shared keys leads to."""
    store.execute("""
        INSERT INTO changed
        WITH RECURSIVE reached AS (
            SELECT trace_id FROM changed
            UNION
            SELECT other.trace_id
            FROM reached
            JOIN trace_keys mine ON mine.trace_id = reached.trace_id
            JOIN trace_keys other ON other.key = mine.key
        )
        FROM reached EXCEPT FROM changed
    """)


def _spans(store: Store) -> list[Span]:
    return [_span(row) for row in store.query(SPANS).to_pylist()]


def _logs(store: Store) -> list[Log]:
    query = LOGS.format(which="trace_id IN (SELECT trace_id FROM changed)")
    return [_log(row) for row in store.query(query).to_pylist()]


def _by_trace(records: Iterable[Any]) -> defaultdict[str, list[Any]]:
    grouped: defaultdict[str, list[Any]] = defaultdict(list)
    for record in records:
        grouped[record.trace_id].append(record)
    return grouped


def _span(row: dict[str, Any]) -> Span:
    events = tuple(
        Event(event["name"], event["time_ns"], _attributes(event["attributes"]))
        for event in row.pop("events") or ()
    )
    links = tuple(link for link in row.pop("links") or () if link)
    return Span(**_with_maps(row), events=events, links=links)


def _log(row: dict[str, Any]) -> Log:
    return Log(**_with_maps(row))


def _with_maps(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: _attributes(row[name]) for name in ("resource", "attributes")}


def _attributes(pairs: list[tuple[str, str | None]] | None) -> dict[str, str]:
    """A map as DuckDB gives it; a key without value says nothing."""
    return {key: value for key, value in pairs or () if value is not None}


def _insert(store: Store, derived: Derived) -> None:
    rows: dict[str, Sequence[Any]] = {
        "llm_calls": derived.llm_calls,
        "tool_calls": derived.tool_calls,
        "agent_runs": derived.agent_runs,
        "reward_events": derived.rewards,
        "arms": derived.arms,
    }
    for table, records in rows.items():
        if records:
            store.insert(table, _table(store, table, records))
    _insert_tasks(store, derived.tasks)
    unread = [
        {"trace_id": trace, "span_id": span, "reason": reason}
        for (trace, span), reason in derived.unread.items()
    ]
    if unread:
        store.insert("unread_spans", pa.Table.from_pylist(unread))


def _insert_tasks(store: Store, tasks: dict[str, str]) -> None:
    if tasks:
        store.execute(f"DELETE FROM rollout_tasks WHERE rollout_id IN ({_quoted(tasks)})")
        rows = {"rollout_id": list(tasks), "task_id": list(tasks.values())}
        store.insert("rollout_tasks", pa.table(rows))


def _table(store: Store, table: str, records: Sequence[Any]) -> pa.Table:
    schema = store.query(f"FROM {table} LIMIT 0").schema
    columns = {}
    for column in schema:
        name = {"start_time": "start_ns", "end_time": "end_ns", "time": "time_ns"}.get(
            column.name, column.name
        )
        values = [getattr(record, name) for record in records]
        if column.name in JSON_COLUMNS:
            values = [None if v is None else json.dumps(v, ensure_ascii=False) for v in values]
        columns[column.name] = pa.array(values, column.type)
    return pa.table(columns, schema=schema)


def _quoted(texts: Iterable[str]) -> str:
    return ",".join(quote_literal(text) for text in texts)
