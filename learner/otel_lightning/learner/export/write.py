"""`lightning-learn export`: transitions to a file that a trainer reads."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from otel_lightning.collector.store import Store, open_store, statement
from otel_lightning.collector.store.sql_text import Value
from otel_lightning.learner.errors import DataError, no_transitions
from otel_lightning.learner.export.formats.rows import MESSAGES, Format
from otel_lightning.learner.named_sql import number
from otel_lightning.learner.progress import Progress
from otel_lightning.learner.transitions.splits import HELD_OUT, TRAIN
from otel_lightning.learner.transitions.stage import BOUNDS, CALLS_A_BUCKET

ROWS_AT_ONCE = 1_000
"""So many transitions lie in memory with their text."""
SPLITS = {"train": (TRAIN,), "heldout": (HELD_OUT,), "all": (TRAIN, HELD_OUT)}

PIECE = 20 * 1024
"""So many stored calls are joined with their text at once."""
EVERYTHING = (0, 2**62)

Rows: TypeAlias = list[dict[str, Any]] | pa.RecordBatch
"""What a format made, or source rows as they are."""
Write = Callable[[Rows], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, in numbers."""

    rows: int
    left_out: int
    """Source rows that lack what the format needs: text, or an answer."""


def export(store: str, form: Format, output: Path, *, split: str, threshold: float) -> Exported:
    """Write the transitions of a store to a file; it appears whole or not at all.

    Args:
        store: Location of the store.
        form: One of `FORMATS`.
        output: `.parquet` or `.jsonl`.
        split: `train`, `heldout` or `all`.
        threshold: Least advantage (or margin between two answers), not itself included.

    Raises:
        DataError: If there is nothing to write, the file's name says no known form, or the
            threshold is not finite.
        StoreError: If the store cannot be read.
    """
    writer = WRITERS.get(output.suffix)
    if writer is None:
        raise DataError(f"'{output}' must end with {' or '.join(WRITERS)}.")
    if not math.isfinite(threshold):
        raise DataError(f"--threshold is {threshold}; it must be a finite number.")
    output.parent.mkdir(parents=True, exist_ok=True)
    staging = output.with_name(f".{output.name}.partial")
    try:
        with open_store(store, create=False) as opened, writer(staging, form) as write:
            if not number(opened, "SELECT count(*) FROM transition_rows"):
                raise no_transitions(store)
            done = _write_all(_read(opened, form, split, threshold), form, write)
        if not done.rows:
            raise DataError(_nothing(form, done, split, threshold))
        staging.replace(output)
    finally:
        staging.unlink(missing_ok=True)
    return done


def _read(store: Store, form: Format, split: str, threshold: float) -> Iterator[pa.RecordBatch]:
    values: dict[str, Value] = {
        "splits": SPLITS[split],
        "threshold": float(threshold),
        "all": not form.above_threshold,
    }
    progress, total = Progress("Export", 0), 0
    for first, last in _pieces(store, values) if form.by_call else [EVERYTHING]:
        piece = statement(__package__, form.statement, first=first, last=last, **values)
        for batch in store.stream(piece, ROWS_AT_ONCE if form.row else PIECE):
            total += len(batch)
            progress.report(total, "transitions read")
            yield batch


def _pieces(store: Store, values: Mapping[str, Value]) -> list[tuple[int, int]]:
    """Stage what is exported, and cut what is much into ranges of stored calls.

    An ingester may move calls meanwhile: then all is read at once.
    """
    if store.server or number(store, "SELECT count(*) FROM transition_rows") <= CALLS_A_BUCKET:
        store.execute(statement(__package__, "exported_whole", **values))
        return [EVERYTHING]
    store.execute(BOUNDS)
    store.execute(statement(__package__, "exported_pieces", **values))
    last = number(store, "SELECT coalesce(max(place), 0) FROM exported")
    return [(first, first + PIECE - 1) for first in range(0, last + 1, PIECE)]


def _write_all(batches: Iterator[pa.RecordBatch], form: Format, write: Write) -> Exported:
    rows = left_out = 0
    for batch in batches:
        if form.row is None:
            write(batch.select(list(form.columns)))
            rows += len(batch)
            continue
        made = [form.row(source) for source in batch.to_pylist()]
        kept = [row for row in made if row is not None]
        rows, left_out = rows + len(kept), left_out + len(made) - len(kept)
        write(kept)
    return Exported(rows, left_out)


def _nothing(form: Format, done: Exported, split: str, threshold: float) -> str:
    if done.left_out:
        return (
            f"None of {done.left_out} rows has the text that this format needs. Record message "
            "content in the agent, or choose a format that takes token ids."
        )
    return form.empty.format(split=split, threshold=threshold)


@contextmanager
def _json_lines(path: Path, form: Format) -> Iterator[Write]:  # noqa: ARG001 - one signature
    with path.open("w", encoding="utf-8") as file:

        def write(rows: Rows) -> None:
            if isinstance(rows, pa.RecordBatch):
                rows = rows.to_pylist()
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

        yield write


@contextmanager
def _parquet(path: Path, form: Format) -> Iterator[Write]:
    schema = pa.schema(form.columns)
    with pq.ParquetWriter(path, schema, compression="zstd" if form.row else "lz4") as file:

        def write(rows: Rows) -> None:
            if isinstance(rows, pa.RecordBatch):
                file.write_batch(rows.cast(schema))
                return
            arrays = [_column([row.get(f.name) for row in rows], f.type) for f in schema]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind != MESSAGES:
        return pa.array(values, kind)
    texts = [
        None if one is None else [json.dumps(m, ensure_ascii=False) for m in one] for one in values
    ]
    return pa.array(texts, pa.list_(pa.utf8())).cast(MESSAGES)


WRITERS: Mapping[str, Any] = {".parquet": _parquet, ".jsonl": _json_lines}
