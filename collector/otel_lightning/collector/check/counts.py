"""`lightning-ingest check`: is all well?"""

from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.load.batches import waiting
from otel_lightning.collector.store import Store

COUNTED = (
    "spans", "logs", "rejected", "llm_calls", "tool_calls", "agent_runs", "arms", "rewards",
    "rollouts", "transitions", "unread_spans", "stale",
)  # fmt: skip


class Finding(NamedTuple):
    """One line of the check; `well` is False for what needs a look."""

    name: str
    value: str
    well: bool = True


def check(store: Store, path: Path) -> list[Finding]:
    """Count what is stored and look for what waits or went wrong."""
    counts = {table: _count(store, table) for table in COUNTED}
    unstored = waiting(store, path)
    schema = store.query("SELECT max(version) AS v FROM schema_migrations")["v"][0].as_py()
    running = f"process {store.server.pid} at {store.server.http}" if store.server else "no"
    return [
        Finding("store", str(path)),
        Finding("receiving", running),
        Finding("versions", f"otel-lightning {version('otel-lightning')}, schema {schema}, "
                f"duckdb {version('duckdb')}"),
        *(Finding(table, f"{counts[table]:,}", _is_well(table, counts)) for table in COUNTED),
        Finding("spool backlog", f"{unstored:,} bytes", bool(store.server) or unstored == 0),
    ]  # fmt: skip


def _count(store: Store, table: str) -> int:
    return int(store.query(f"SELECT count(*) AS n FROM {table}")["n"][0].as_py())


def _is_well(table: str, counts: dict[str, int]) -> bool:
    return table not in ("rejected", "unread_spans") or counts[table] == 0
