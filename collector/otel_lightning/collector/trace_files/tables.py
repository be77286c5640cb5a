"""Read tables: the rows of a Parquet or CSV file, a few at a time.

The memory that it takes does not depend on the size of the file: of Parquet, parts of a row group
are read, and of CSV, one row.
"""

import csv
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import parquet

from otel_lightning.collector.store.times_as_text import is_time, times_as_text

ROWS_AT_ONCE = 64
"""Number of rows of Parquet that are read together. A row can hold a megabyte of messages."""
BUFFER_BYTES = 1 << 20
"""Number of bytes of a Parquet column that are read at a time."""
NULL = r"\N"
"""How ClickHouse writes NULL in CSV."""

Row = dict[str, Any]


def parquet_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet file, with times as text and maps as dictionaries.

    Raises:
        ValueError: If the file is damaged.
        OSError: If it cannot be read.
    """
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                columns = [times_as_text(column, _is_text) for column in batch.columns]
                rows = pa.table(columns, batch.schema.names)
                yield from rows.to_pylist(maps_as_pydicts="lossy")
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"the Parquet file is damaged or cut off ({error})") from error


def _is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are read as text: times, and bytes, which may be text."""
    return is_time(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def csv_rows(stream: IO[bytes]) -> Iterator[Row]:
    """Yield the rows of CSV with a header. Empty cells are None.

    Raises:
        ValueError: If it is no such CSV, or is cut off.
    """
    csv.field_size_limit(sys.maxsize)  # the default is 131,072 characters
    # `utf-8-sig` leaves out the mark that Excel writes at the begin.
    with TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        # Only `strict` reports a text that has no end: the file is cut off.
        reader = csv.reader(text, strict=True)
        try:
            names = next(reader)
            for cells in filter(None, reader):  # no empty lines
                yield _row(names, cells)
        except csv.Error as error:
            raise ValueError(f"the CSV is damaged or cut off ({error})") from error


def _row(names: list[str], cells: list[str]) -> Row:
    if len(cells) != len(names):
        raise ValueError(f"a row has {len(cells)} cells, but there are {len(names)} columns")
    return {
        name: None if cell in {"", NULL} else cell for name, cell in zip(names, cells, strict=True)
    }
