"""`lightning-ingest check`: count the rows of a store and find backlogs and errors."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.alarms import KINDS, LAGGING, Alarm, read_alarms
from otel_lightning.collector.files.disk_check import error_in_time
from otel_lightning.collector.ingester_client.http import metrics_of
from otel_lightning.collector.last_run import is_running, previous_end, unasked_end
from otel_lightning.collector.load.position import oldest_waiting, waiting
from otel_lightning.collector.maintain.unfinished_erasure import UnfinishedErasure
from otel_lightning.collector.receive.metrics import (
    ids_to_read,
    raised_alarms,
    requests_read_again,
    unread_connections,
    wrong_ports,
)
from otel_lightning.collector.refresh.stale import find_stale
from otel_lightning.collector.spool.faults import HANGS, fault, folder_fault, store_fault
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.store import Server, Store, StoreError, read_server, statement
from otel_lightning.collector.terminal.quantities import number_of

COUNTED = (
    "spans", "logs", "rejected", "llm_calls", "tool_calls", "agent_runs", "retrievals", "arms",
    "rewards", "rollouts", "transitions", "unread_spans", "stale",
)  # fmt: skip


class Finding(NamedTuple):
    """One line of the report; `is_fine` is False if a person should look at it."""

    name: str
    value: str
    is_fine: bool = True


def check_store(store: Store, path: Path) -> list[Finding]:
    """Count the rows of each table, and report backlogs, rejected rows and alarms."""
    counts = {table: store.count(table) for table in COUNTED}
    alarms = read_alarms(path)
    schema = store.query("SELECT max(version) AS v FROM schema_migrations")["v"][0].as_py()
    running = f"process {store.server.pid} at {store.server.http}" if store.server else "no"
    return [
        Finding("store", str(path)),
        Finding("receiving", running),
        Finding("versions", f"otel-lightning {version('otel-lightning')}, schema {schema}, "
                f"duckdb {version('duckdb')}"),
        *(Finding(table, f"{counts[table]:,}", _is_fine(table, counts)) for table in COUNTED),
        _repeated(store),
        _backlog(store, path),
        _derive_backlog(store, is_late=LAGGING in {alarm.name for alarm in alarms}),
        *_unfinished(store, path),
        *_faults(path, alarms, store.server),
    ]  # fmt: skip


def check_unopened(path: Path, error: StoreError) -> list[Finding]:
    """Report what is known of a store that cannot be opened, and the reason."""
    return [
        Finding("store", str(error), is_fine=False),
        *_faults(path, read_alarms(path), read_server(path)),
    ]


def check_disks(path: Path) -> list[Finding]:
    """Report disks that take no writes, or that do not answer.

    Raises:
        StoreError: If one hangs: then the process that serves the store answers no statement.
    """
    folder = spool_folder(path)
    faults = {
        "disk": store_fault(path, partial(error_in_time, read=[path])),
        "spool": folder_fault(folder, partial(error_in_time, read=[folder])),
    }
    for problem in faults.values():
        if problem and HANGS in problem:
            raise StoreError(f"{problem} So nothing was counted.")
    return [Finding(name, problem, is_fine=False) for name, problem in faults.items() if problem]


def _faults(path: Path, alarms: list[Alarm], server: Server | None) -> Iterator[Finding]:
    """Report alarms of the running process or of the last one, and how that ended."""
    yield from map(_alarm, alarms)
    if server:
        if end := previous_end(path):
            yield Finding("last process", f"{end.sentence}; it was started again")
        yield from _running(server, {alarm.name for alarm in alarms})
    elif (end := unasked_end(path)) and not is_running(path):
        yield Finding("last process", f"{end.sentence}; start it again", is_fine=False)


def _running(server: Server, in_file: set[str]) -> Iterator[Finding]:
    """Report what only the running process knows.

    Args:
        server: It.
        in_file: The alarms of its file, which it cannot write on a full disk.
    """
    try:
        text = metrics_of(server)
    except StoreError as error:
        # With TLS it may ask for a client certificate, which this command does not have.
        if server.tls_cert is None:
            yield Finding("answers", str(error), is_fine=False)
        return
    for name in sorted(raised_alarms(text) - in_file):
        yield Finding(f"alarm {name}", KINDS.get(name, "see its log"), is_fine=False)
    if requests := requests_read_again(text):
        yield Finding("read again", f"{number_of(requests, 'request')} of the last process")
    if rows := ids_to_read(text):
        detail = f"of {number_of(rows, 'row')} are left, as after a crash; storing waits for them"
        yield Finding("ids to read", detail)
    if clients := unread_connections(text):
        detail = (
            f"{number_of(clients, 'connection')} to the HTTP port without a request that can be "
            "read, as with TLS on one side only; the log has the first one"
        )
        # No fault: a port that is open to all has such clients always.
        yield Finding("unread connections", detail)
    for port, clients in wrong_ports(text).items():
        detail = (
            f"{number_of(clients, 'connection')} to the port for {port} spoke another protocol: "
            "lost"
        )
        yield Finding("wrong port", f"{detail}; see doctor", is_fine=False)


def _backlog(store: Store, path: Path) -> Finding:
    """Report the bytes on the spool that are not stored yet.

    While a process stores them, a backlog is normal: the alarm `lagging` tells a wait too long.
    """
    try:
        unstored = waiting(store, path)
    except OSError as error:
        return Finding("spool backlog", fault(spool_folder(path), error), is_fine=False)
    if not store.server or not unstored:
        return Finding("spool backlog", number_of(unstored, "byte"), unstored == 0)
    received_ns = oldest_waiting(store, path)
    text = f"{number_of(unstored, 'byte')}, {_oldest(received_ns)}"
    return Finding("spool backlog", text)


def _oldest(received_ns: int | None) -> str:
    """Tell when the oldest request that waits was received, in Unix nanoseconds; None is now."""
    seconds = (time.time_ns() - received_ns) / 1e9 if received_ns else 0.0
    if seconds < -1:  # how long it waits, only the process that received it knows
        return "the oldest received before the clock was set back"
    return f"the oldest received {max(seconds, 0):.0f} seconds ago"


def _derive_backlog(store: Store, *, is_late: bool) -> Finding:
    """Report the age of the oldest stale trace.

    Args:
        store: A direct or served store.
        is_late: Whether the process that derives has raised the alarm `lagging`.
    """
    stale = find_stale(store)
    if stale.oldest_ns is None:
        text = "traces that an upgrade, --rebuild or --no-derive left" if stale.has_undated else ""
        return Finding("not derived", text or "nothing waits", is_fine=True)
    return Finding("not derived", _oldest(stale.oldest_ns), not is_late)


def _repeated(store: Store) -> Finding:
    """Report the number of spans that were not stored because other spans have their ids."""
    rows = int(store.query(statement(__package__, "repeated_ids"))["n"][0].as_py())
    return Finding("repeated ids", f"{number_of(rows, 'span')} not stored; see rejected", rows == 0)


def _unfinished(store: Store, path: Path) -> Iterator[Finding]:
    """Report that erased rows may still be readable in the store's file."""
    if UnfinishedErasure.of(path) is None:
        return
    text = "it goes on, or was interrupted" if store.server else "it was interrupted"
    yield Finding("forget", f"{text}; run it again if it has ended", is_fine=False)


def _alarm(alarm: Alarm) -> Finding:
    since = datetime.fromtimestamp(alarm.since, UTC).isoformat(timespec="seconds")
    return Finding(f"alarm {alarm.name}", f"since {since}: {alarm.reason}", is_fine=False)


def _is_fine(table: str, counts: dict[str, int]) -> bool:
    # A rejected row was not stored, and an unread span has no derived rows: these two should stay
    # empty. The other numbers are neither good nor bad.
    return table not in ("rejected", "unread_spans") or counts[table] == 0
