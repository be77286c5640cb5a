"""Answers of `lightning-ingest sql`: a table for people, json, csv or parquet for programs."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from otel_lightning.collector.store.errors import as_store_error
from otel_lightning.collector.store.sql_text import quote_literal

CELL = 60


def write(rows: pa.Table, form: str, output: Path | None, *, echo: Callable[[str], None]) -> None:
    """Write an answer in the form asked for, to a file or through `echo`."""
    if form == "table":
        text = as_table(rows)
    elif output:
        copy_to(rows, form, output)
        return
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "answer"
            copy_to(rows, form, file)
            text = file.read_text().rstrip("\n")
    if output:
        output.write_text(text + "\n")
    else:
        echo(text)


def as_table(rows: pa.Table) -> str:
    """Align columns for a terminal: numbers right, long cells cut with an ellipsis."""
    right = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in rows.schema]
    rows = pa.table([_times_as_text(column) for column in rows.columns], rows.column_names)
    body = [[_cell(v) for v in row.values()] for row in rows.to_pylist(maps_as_pydicts="lossy")]
    lines = [list(rows.column_names), *body]
    widths = [max(len(line[i]) for line in lines) for i in range(len(right))]
    aligned = [
        "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)
        )
        for line in lines
    ]
    aligned.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in aligned)


def copy_to(rows: pa.Table, form: str, file: Path) -> None:
    """Write rows as csv, json or parquet, by DuckDB's own writers."""
    options = "FORMAT json, ARRAY true" if form == "json" else f"FORMAT {form}"
    with as_store_error(), duckdb.connect() as connection:
        connection.register("answer", rows)
        connection.execute(f"COPY answer TO {quote_literal(str(file))} ({options})")


def _times_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast times to text at any depth: Python's own have no nanoseconds, and Arrow asks pandas."""
    return column.cast(_without_times(column.type))


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_times(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _without_times(f.type)) for f in kind.fields])
    return kind


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:,.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= CELL else text[: CELL - 1] + "…"
