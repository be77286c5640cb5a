"""Keep the derived tables current: what is stale, the traces that it changes, their rows.

A new span can change more than its own trace: a conversation's other turns, a message history that
it continues. `trace_keys` holds what ties traces together; following the keys gives a closed set of
traces, whose rows are derived anew and replace the old ones in one transaction. So the tables do
not depend on the order in which anything arrived.
"""

import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from otel_lightning.collector.derive.assemble import derive, put_together
from otel_lightning.collector.derive.links import Tie, ties
from otel_lightning.collector.derive.parse import Reading, fold_requests, read
from otel_lightning.collector.derive.rows import Derived
from otel_lightning.collector.derive.text import repeated
from otel_lightning.collector.derive.text.json_text import dumps
from otel_lightning.collector.refresh import read_spans, sorted_copy
from otel_lightning.collector.refresh.backoff import Pace
from otel_lightning.collector.store import OutOfMemoryError, Store, quote_literal

logger = logging.getLogger(__name__)
SPANS_AT_ONCE = 25_000
"""How many spans are derived together, unless one closed set has more: this bounds memory."""
LOGS_AT_ONCE = 5_000
TEXT_AT_ONCE = 8_000_000
"""About how many characters of JSON are handed to the store at once."""
TEXT_PER_COMMIT = 200_000_000
"""More bytes of rows are committed and written to the file in parts: else memory holds them all."""
JSON_COLUMNS = {
    "request_params",
    "tool_definitions",
    "input_messages",
    "output_messages",
    "arguments",
    "result",
    "documents",
}
MESSAGES = ("input_messages", "output_messages")  # in the order of what is packed
RECORDED_AS = {"start_time": "start_ns", "end_time": "end_ns", "time": "time_ns"}
Texts = dict[str, list[bytes | None]]
PER_TRACE = (
    "llm_calls",
    "tool_calls",
    "agent_runs",
    "retrievals",
    "arms",
    "reward_events",
    "unread_spans",
)

# Traces that likely belong together begin at one time: that of the first. So few closed sets are
# met twice, and what is read for one lies side by side.
SIZE = """
    CREATE TEMP TABLE sized AS
    SELECT DISTINCT stale.id, known.near, coalesce(known.spans, 1) AS spans,
        min(known.first_time) OVER (PARTITION BY coalesce(known.near, stale.id)) AS first_time,
        min(stale.received_at) OVER (PARTITION BY stale.id) AS received_at
    FROM stale LEFT JOIN (
        SELECT trace_id, count(*) AS spans, min(start_time) AS first_time,
            max(coalesce("lightning.rollout.id", "gen_ai.conversation.id", "session.id")) AS near
        FROM spans
        WHERE trace_id IN (SELECT id FROM stale WHERE kind = 'trace' AND stale.spans IS NULL)
        GROUP BY trace_id
    ) known ON known.trace_id = stale.id
    WHERE kind = 'trace' AND stale.spans IS NULL;
    DELETE FROM stale WHERE kind = 'trace' AND id IN (SELECT id FROM sized);
    INSERT INTO stale BY NAME SELECT 'trace' AS kind, * FROM sized;
    DROP TABLE sized
"""
# A rollout is derived as a whole: what was derived of it before counts too, once, and what likely
# belongs to it is not left for the next refresh.
PICK = """
    WITH first AS (
        FROM stale WHERE kind = 'trace' AND coalesce(near, id) NOT IN ({waiting})
        ORDER BY first_time, near NULLS LAST, id LIMIT {limit}
    ), derived AS (
        SELECT rollout_id AS near, 2 * count(*) AS spans FROM llm_calls
        WHERE rollout_id IN (SELECT near FROM first) GROUP BY rollout_id
    ), weighed AS (
        SELECT first.*, first.spans
            + if(id = min(id) OVER (PARTITION BY near), coalesce(derived.spans, 0), 0) AS weight
        FROM first LEFT JOIN derived USING (near)
    ), summed AS (
        SELECT id, near,
            sum(weight) OVER (ORDER BY first_time, near NULLS LAST, id) - weight AS before
        FROM weighed
    )
    SELECT id AS trace_id FROM (
        SELECT id, min(before) OVER (PARTITION BY coalesce(near, id)) AS before FROM summed
    ) WHERE before < {limit}
"""
# Found by its row, what is far from all of these is not even looked at.
OF_FRONTIER = "rowid IN (SELECT rowid FROM {table} WHERE trace_id IN (FROM frontier))"
# `frontier` holds the traces that were read last, `tied` their keys; `changed` all of the closed
# set so far.
NO_KEYS = "CREATE OR REPLACE TEMP TABLE tied (trace_id VARCHAR, key VARCHAR, seeks VARCHAR)"
FRESH = "SELECT id FROM stale WHERE kind = 'trace' AND id IN (FROM frontier)"
KEYS = f"""
    DELETE FROM trace_keys WHERE trace_id IN ({FRESH});
    INSERT INTO trace_keys SELECT DISTINCT trace_id, md5_number_lower(key) FROM tied
    WHERE trace_id IN ({FRESH}) ORDER BY ALL
"""
# Some servers give one id to every response: what so many traces share ties none of them.
CROWD = 1_000
NEXT = f"""
    CREATE OR REPLACE TEMP TABLE sought AS
    SELECT trace_id, md5_number_lower(seeks) AS key,
        regexp_matches(seeks, '^(rollout|conversation):') AS ties_all
    FROM tied;
    CREATE OR REPLACE TEMP TABLE met AS
    FROM trace_keys WHERE key IN (SELECT key FROM sought);
    CREATE OR REPLACE TEMP TABLE frontier AS
    SELECT DISTINCT trace_id FROM met
    WHERE trace_id NOT IN (FROM changed) AND (
        key IN (SELECT key FROM sought WHERE ties_all)
        OR key IN (SELECT key FROM met GROUP BY key HAVING count(*) <= {CROWD})
    )
"""
SETTLED = """
    DELETE FROM stale WHERE kind = 'trace' AND id IN (FROM changed);
    DROP TABLE changed; DROP TABLE frontier; DROP TABLE tied; DROP TABLE sought; DROP TABLE met
"""
# What was just read and continues a rollout that waits, waits with it.
PUT_OFF = """
    UPDATE stale SET near = found.rollout_id FROM (
        SELECT mine.trace_id, min(rollout_id) AS rollout_id
        FROM sought mine JOIN met theirs USING (key) JOIN (
            SELECT trace_id, rollout_id FROM llm_calls
            UNION ALL SELECT id, near FROM stale WHERE kind = 'trace'
        ) known ON known.trace_id = theirs.trace_id
        WHERE mine.trace_id IN (FROM changed) AND theirs.trace_id IN (FROM frontier)
            AND rollout_id IN ({waiting})
        GROUP BY mine.trace_id
    ) found
    WHERE kind = 'trace' AND id = found.trace_id AND coalesce(near, id) NOT IN ({waiting})
    RETURNING id
"""


def refresh(store: Store, spans_at_once: int = SPANS_AT_ONCE, pace: Pace | None = None) -> int:
    """Bring the derived tables up to date with some of what is stale.

    Args:
        store: A direct store.
        spans_at_once: About how many spans to derive together; more at once cost more memory.
        pace: Which rollouts wait, where spans keep coming; none do without it.

    Returns:
        How many stale traces and log records were dealt with; 0 when nothing is stale, or all that
        is waits.
    """
    loose = f"SELECT DISTINCT id FROM stale WHERE kind = 'log' ORDER BY id LIMIT {LOGS_AT_ONCE}"
    logs = _column(store, loose)
    if logs:
        _refresh_loose_logs(store, logs)
    with _uncollected():  # what is derived is let go before the collector runs again
        return len(logs) + _refresh_traces(store, spans_at_once, pace or Pace())


def refresh_with_room(
    store: Store, spans_at_once: int = SPANS_AT_ONCE, pace: Pace | None = None
) -> int:
    """Refresh; a rollout that is too long for the memory limit gets more, for this once."""
    try:
        return refresh(store, spans_at_once, pace)
    except OutOfMemoryError:
        logger.warning("A rollout does not fit --memory: it is derived with more for once")
        with store.with_room():
            return refresh(store, spans_at_once, pace)


class Stale(NamedTuple):
    """What is not derived yet."""

    ids: int
    """Traces and log records."""
    received_ns: int | None
    """When the first of them was received, Unix nanoseconds."""


def oldest_stale(store: Store, since_ns: int = 0, waiting: Iterable[str] = ()) -> Stale:
    """Return how much is not derived yet, and since when.

    Args:
        store: Any store.
        since_ns: Ignore what was received before.
        waiting: The rollouts that wait to be derived again, which do not count.
    """
    found = store.query(
        "SELECT count(*) AS n, epoch_ns(min(received_at)) AS since FROM stale"
        f" WHERE epoch_ns(received_at) >= {since_ns}"
        f" AND coalesce(near, id) NOT IN ({_quoted(waiting) or repr('')})"
    ).to_pylist()[0]
    return Stale(found["n"], found["since"])


def rebuild(store: Store) -> None:
    """Empty the derived tables and mark all that was received as stale."""
    tables = (*PER_TRACE, "rollout_tasks", "trace_keys", "stale")
    deletes = "".join(f"DELETE FROM {table};" for table in tables)
    store.execute(f"""
        BEGIN;
        {deletes}
        INSERT INTO stale BY NAME SELECT DISTINCT 'trace' AS kind, trace_id AS id FROM spans;
        INSERT INTO stale BY NAME SELECT DISTINCT if(trace_id IS NULL, 'log', 'trace') AS kind,
            coalesce(trace_id, log_id) AS id FROM logs;
        COMMIT
    """)


def _column(store: Store, query: str) -> list[Any]:
    values: list[Any] = store.query(query).column(0).to_pylist()
    return values


def _refresh_traces(store: Store, spans_at_once: int, pace: Pace) -> int:
    if not _column(store, "SELECT 1 FROM stale WHERE kind = 'trace' LIMIT 1"):
        sorted_copy.forget(store)
        return 0
    began = pace.clock()
    with store.transaction():
        if _column(store, sorted_copy.NEW):
            sorted_copy.forget(store)
            store.execute(SIZE)
        found = _read_picked(store, spans_at_once, _quoted(pace.waiting()))
        if not (done := _column(store, "SELECT count(*) FROM changed HAVING count(*) > 0")):
            return 0
        derived = put_together(found)
        for table in PER_TRACE:
            store.execute(f"DELETE FROM {table} WHERE trace_id IN (FROM changed)")
        _insert_tasks(store, derived.tasks)
        rows = _rows(store, derived)
        is_whole = _insert_some(store, rows)
    # What is very long is replaced bit by bit, and stays stale until all of it is.
    while not is_whole:
        store.checkpoint()
        with store.transaction():
            is_whole = _insert_some(store, rows)
    pace.note(Counter(call.rollout_id or "" for call in derived.llm_calls), began)
    return int(done[0])


def _insert_some(store: Store, rows: Iterator[tuple[str, pa.Table]]) -> bool:
    """Insert as much as one commit may hold; whether that was all."""
    size = 0
    for table, some in rows:
        store.insert(table, some)
        size += some.nbytes
        if size > TEXT_PER_COMMIT:
            return False
    store.execute(SETTLED)
    return True


def _read_picked(store: Store, spans_at_once: int, waiting: str) -> Reading:
    """Read some of what is stale, but nothing that belongs to the rollouts that wait."""
    found = None
    while found is None:
        picked = PICK.format(limit=spans_at_once, waiting=waiting or "''")
        store.execute(
            "CREATE OR REPLACE TEMP TABLE changed (trace_id VARCHAR);"
            f"CREATE OR REPLACE TEMP TABLE frontier AS {picked}"
        )
        found = _read_closed_set(store, sorted_copy.source(store, spans_at_once), waiting)
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python's cycle collector from walking the rows again and again: they hold no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        repeated.forget()
        if was_enabled:
            gc.enable()


def _read_closed_set(store: Store, table: str, waiting: str) -> Reading | None:
    """Read the traces of `frontier` from a table, and from `spans` all that shared keys lead to.

    Returns:
        Nothing if some of these turn out to belong to a rollout that waits.
    """
    found = Reading()
    while _column(store, "SELECT 1 FROM frontier LIMIT 1"):
        store.execute("INSERT INTO changed FROM frontier")
        of_logs, of_spans = (OF_FRONTIER.format(table=one) for one in ("logs", table))
        logs = list(read_spans.logs(store.query(read_spans.LOGS.format(which=of_logs))))
        spans = read_spans.SPANS.format(table=table, which=of_spans)
        some = read(read_spans.spans(store.stream(spans, read_spans.ROWS_AT_ONCE)), logs)
        table = "spans"
        fold_requests(some)
        tied = ties(some)
        found.add(some)
        _follow(store, tied)
        if waiting and _column(store, PUT_OFF.format(waiting=waiting)):
            return None
    return found


def _follow(store: Store, tied: Iterable[Tie]) -> None:
    """Write the keys of what is stale of `frontier`, and put in its place what its keys lead to."""
    store.execute(NO_KEYS)
    if rows := list(tied):
        columns = zip(*rows, strict=True)
        store.insert("tied", pa.table(dict(zip(Tie._fields, columns, strict=True))))
    store.execute(KEYS)
    store.execute(NEXT)


def _refresh_loose_logs(store: Store, log_ids: Sequence[str]) -> None:
    ids = f"({_quoted(log_ids)})"
    rows = store.query(read_spans.LOGS.format(which=f"log_id IN {ids}"))
    derived = derive([], read_spans.logs(rows))
    with store.transaction():
        known = _quoted(reward.reward_id for reward in derived.rewards) or "''"
        store.execute(f"DELETE FROM reward_events WHERE reward_id IN ({known})")
        for table, some in _rows(store, derived):
            store.insert(table, some)
        store.execute(f"DELETE FROM stale WHERE kind = 'log' AND id IN {ids}")


def _rows(store: Store, derived: Derived) -> Iterator[tuple[str, pa.Table]]:
    # The calls of a rollout repeat each other's messages: side by side they compress to one.
    calls = sorted(derived.llm_calls, key=lambda call: (call.rollout_id or "", call.step or 0))
    rows: dict[str, Sequence[Any]] = {
        "llm_calls": calls,
        "tool_calls": derived.tool_calls,
        "agent_runs": derived.agent_runs,
        "retrievals": derived.retrievals,
        "reward_events": derived.rewards,
        "arms": derived.arms,
    }
    for table, records in rows.items():
        yield from ((table, some) for some in _tables(store, table, records))
    unread = [
        {"trace_id": trace, "span_id": span, "reason": reason}
        for (trace, span), reason in derived.unread.items()
    ]
    if unread:
        yield "unread_spans", pa.Table.from_pylist(unread)


def _insert_tasks(store: Store, tasks: dict[str, str]) -> None:
    if tasks:
        store.execute(f"DELETE FROM rollout_tasks WHERE rollout_id IN ({_quoted(tasks)})")
        rows = {"rollout_id": list(tasks), "task_id": list(tasks.values())}
        store.insert("rollout_tasks", pa.table(rows))


def _tables(store: Store, table: str, records: Sequence[Any]) -> Iterator[pa.Table]:
    """Yield the rows as tables, none with much more text than can be inserted at once."""
    if not records:
        return
    schema = store.query(f"FROM {table} LIMIT 0").schema
    texts: Texts = {name: [] for name in schema.names if name in JSON_COLUMNS}
    rows: list[Any] = []
    size = 0
    for record in records:
        rows.append(record)
        for name, column in texts.items():
            text = _json(record, name)
            size += len(text or b"")
            column.append(text)
        if size > TEXT_AT_ONCE:
            yield _arrow(rows, texts, schema)
            texts, rows, size = {name: [] for name in texts}, [], 0
    if rows:
        yield _arrow(rows, texts, schema)


def _json(record: Any, name: str) -> bytes | None:
    if name in MESSAGES and record.packed is not None:
        text: bytes | None = record.packed[MESSAGES.index(name)]
        return text
    value = getattr(record, name)
    return None if value is None else dumps(value)


def _arrow(rows: Sequence[Any], texts: Texts, schema: pa.Schema) -> pa.Table:
    """Build a table column by column; text that was written as JSON stays the bytes that it is."""
    others = [RECORDED_AS.get(name, name) for name in schema.names if name not in texts]
    values = zip(*map(attrgetter(*others), rows), strict=True)
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name in texts:
            columns.append(pa.array(texts[name], pa.binary()).view(pa.string()).cast(kind))
        else:
            columns.append(pa.array(next(values), kind))
    return pa.Table.from_arrays(columns, schema=schema)


def _quoted(texts: Iterable[str]) -> str:
    return ",".join(quote_literal(text) for text in texts)
