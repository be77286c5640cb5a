"""`lightning-learn export`: transitions to a file that a trainer reads."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from otel_lightning.collector.store import Store, open_store, quote_literal
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.exports.rows import MESSAGES, Format
from otel_lightning.learner.progress import Progress
from otel_lightning.learner.splits import HELD_OUT, TRAIN
from otel_lightning.learner.tables import statement

ROWS_AT_ONCE = 1_000
"""So many transitions lie in memory with their text."""
SPLITS = {"train": (TRAIN,), "heldout": (HELD_OUT,), "all": (TRAIN, HELD_OUT)}

Rows = list[dict[str, Any]]
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
        DataError: If there is nothing to write, or the file's name says no known form.
        StoreError: If the store cannot be read.
    """
    writer = WRITERS.get(output.suffix)
    if writer is None:
        raise DataError(f"'{output}' must end with {' or '.join(WRITERS)}.")
    staging = output.with_name(f".{output.name}.partial")
    try:
        with open_store(store, create=False) as opened, writer(staging, form) as write:
            done = _write_all(_read(opened, form, split, threshold), form, write)
        if not done.rows:
            raise DataError(_nothing(form, done, split, threshold))
        staging.replace(output)
    finally:
        staging.unlink(missing_ok=True)
    return done


def _read(store: Store, form: Format, split: str, threshold: float) -> Iterator[pa.RecordBatch]:
    values = {
        "splits": ", ".join(map(quote_literal, SPLITS[split])),
        "threshold": repr(float(threshold)),
        "all": str(not form.above_threshold),
    }
    query = Template(statement(form.statement)).substitute(values)
    progress, total = Progress("Export", 0), 0
    for batch in store.stream(query, ROWS_AT_ONCE):
        total += len(batch)
        progress.report(total, "transitions read")
        yield batch


def _write_all(batches: Iterator[pa.RecordBatch], form: Format, write: Write) -> Exported:
    rows = left_out = 0
    for batch in batches:
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
    said = form.empty.format(split=split, threshold=threshold)
    return f"{said} Transitions are built by `lightning-learn transitions`."


@contextmanager
def _json_lines(path: Path, form: Format) -> Iterator[Write]:  # noqa: ARG001 - one signature
    with path.open("w", encoding="utf-8") as file:

        def write(rows: Rows) -> None:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

        yield write


@contextmanager
def _parquet(path: Path, form: Format) -> Iterator[Write]:
    schema = pa.schema(form.columns)
    with pq.ParquetWriter(path, schema, compression="zstd") as file:

        def write(rows: Rows) -> None:
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
