"""A batch of traces, from Arrow to Arrow: the function that worker processes run."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
from support.running import LIMIT_S

from otel_lightning.collector.derive.batches.batch import Batch
from otel_lightning.collector.derive.tables import TABLES
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet, size_new
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.store import open_store

DATA = Path(__file__).parents[3] / "data"
RECORDINGS = ("agentlightning/tool", "openinference_openai/tool", "logfire/stream_tool")
Rows = list[tuple[str, pa.Table]]


def derived(
    spans: pa.Table, logs: pa.Table, columns: dict[str, pa.Schema]
) -> tuple[pa.Table, Rows]:
    batch = Batch()
    ties = batch.read(spans.to_batches(), logs)
    batch.assemble_rows()
    return ties, list(batch.tables(columns))


def test_another_process_derives_the_rows_that_a_refresh_writes(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        for recording in RECORDINGS:
            body = (DATA / f"{recording}.otlp.pb").read_bytes()
            load(store, [Request("traces", 1, body)], dead_letters=tmp_path)
        with store.transaction():
            size_new(store)
            closed = ClosedSet(store, 25_000, ())
            logs = closed.logs()
            spans = pa.Table.from_batches(list(closed.spans()))
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawned) as pool:
            ties, tables = pool.submit(derived, spans, logs, schemas(store)).result(LIMIT_S)
        while refresh(store):
            pass
        written = {table: store.query(f"FROM {table}") for table in TABLES}
    assert set(spans["trace_id"].to_pylist()) == set(ties["trace_id"].to_pylist())
    for table, rows in tables:
        stored = written[table].select(rows.schema.names)
        assert rows.cast(stored.schema).equals(stored.combine_chunks()), table
    assert {table for table, rows in written.items() if len(rows)} == {name for name, _ in tables}
