"""`lightning-ingest check --deep`: whether spool, store and derived tables agree."""

from pathlib import Path

from otel_lightning.collector.check.counts import Finding
from otel_lightning.collector.check.derive_again import Compared, compare
from otel_lightning.collector.load.position import stored_until
from otel_lightning.collector.spool.folder import damaged, spool_folder
from otel_lightning.collector.store import Sql, Store, statement
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.collector.terminal.quantities import number_of

KEYS = {"spans": "trace_id, span_id", "logs": "log_id", "llm_calls": "trace_id, span_id"}
"""Columns that identify a row, by table."""
DERIVED = ("llm_calls", "tool_calls", "agent_runs", "retrievals", "arms", "trace_keys")


def check_deep(store: Store, path: Path, sample: int | None = None) -> list[Finding]:
    """Read the whole spool, search for duplicate and orphaned rows, and derive again to compare.

    Args:
        store: A direct or served store.
        path: Path of the store.
        sample: Number of traces to derive again, chosen at random, and as many of those without
            derived rows; None for all.
    """
    folder = spool_folder(path)
    broken = damaged(folder, stored_until(store, folder), writing=store.server is not None)
    return [
        Finding("spool", f"{number_of(broken, 'byte')} cannot be read", is_fine=broken == 0),
        *(_duplicates(store, table, key) for table, key in KEYS.items()),
        *(_orphans(store, table) for table in DERIVED),
        *(_derived_again(compared, store) for compared in compare(store, sample)),
    ]  # fmt: skip


def _derived_again(compared: Compared, store: Store) -> Finding:
    name, wrong = f"{compared.table} derived again", compared.different
    if not wrong:
        return Finding(name, f"{number_of(compared.traces, 'trace is', 'traces are')} equal")
    # The ids are sorted and `NO_TRACE` is the empty text: the last one names a trace if any trace
    # differs.
    example = wrong[-1] or "the rows without a trace id"
    return Finding(
        name,
        f"{len(wrong):,} of {number_of(compared.traces, 'trace')} differ, such as {example}. "
        f"Run: {next_command('lightning-ingest derive --rebuild', store)}",
        is_fine=False,
    )


def _duplicates(store: Store, table: str, key: str) -> Finding:
    query = statement(__package__, "deep_duplicates", table=Sql(table), key=Sql(key))
    return _counted(store, f"duplicates in {table}", query)


def _orphans(store: Store, table: str) -> Finding:
    query = statement(__package__, "deep_orphans", table=Sql(table))
    return _counted(store, f"orphans in {table}", query)


def _counted(store: Store, name: str, query: str) -> Finding:
    rows = int(store.query(query)["n"][0].as_py())
    return Finding(name, number_of(rows, "row"), is_fine=rows == 0)
