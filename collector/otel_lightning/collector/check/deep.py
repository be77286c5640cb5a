"""`lightning-ingest check --deep`: do spool, store and derived tables agree?"""

from pathlib import Path

from otel_lightning.collector.check.counts import Finding
from otel_lightning.collector.check.derive_again import Compared, compare
from otel_lightning.collector.load.batches import spool_position
from otel_lightning.collector.spool import damaged, spool_folder
from otel_lightning.collector.store import Store

REPEATED = """
    SELECT coalesce(sum(copies - 1), 0)::BIGINT AS n FROM (
        SELECT count(*) AS copies FROM {table} GROUP BY {key} HAVING count(*) > 1)
"""
ORPHANED = """
    SELECT count(*) AS n FROM {table}
    WHERE trace_id IS NOT NULL AND trace_id NOT IN (SELECT trace_id FROM spans)
        AND trace_id NOT IN (SELECT trace_id FROM logs WHERE trace_id IS NOT NULL)
"""
UNIQUE = {"spans": "trace_id, span_id", "logs": "log_id", "llm_calls": "trace_id, span_id"}
DERIVED = ("llm_calls", "tool_calls", "agent_runs", "retrievals", "arms", "trace_keys")


def check_deep(store: Store, path: Path, sample: int | None = None) -> list[Finding]:
    """Read the whole spool, search for duplicate and orphaned rows, and derive again to compare.

    Args:
        store: A direct or served store.
        path: Path of the store.
        sample: Number of traces to derive again, chosen at random; None for all.
    """
    folder = spool_folder(path)
    broken = damaged(folder, spool_position(store), writing=store.server is not None)
    return [
        Finding("spool", f"{broken:,} bytes cannot be read", well=broken == 0),
        *(_counted(store, f"{table} twice", REPEATED.format(table=table, key=key))
          for table, key in UNIQUE.items()),
        *(_counted(store, f"{table} of nothing", ORPHANED.format(table=table))
          for table in DERIVED),
        *map(_derived_again, compare(store, sample)),
    ]  # fmt: skip


def _derived_again(compared: Compared) -> Finding:
    name, wrong = f"{compared.table} again", compared.different
    if not wrong:
        return Finding(name, f"{compared.traces:,} traces agree")
    one = wrong[-1] or "what names none"
    return Finding(
        name,
        f"{len(wrong):,} of {compared.traces:,} traces differ, such as {one}. "
        f"Run: lightning-ingest derive --rebuild",
        well=False,
    )


def _counted(store: Store, name: str, query: str) -> Finding:
    rows = int(store.query(query)["n"][0].as_py())
    return Finding(name, f"{rows:,} rows", well=rows == 0)
