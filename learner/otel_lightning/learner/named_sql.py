"""Read the store into polars frames, with statements from the `sql/` folder of the caller."""

from collections.abc import Iterator

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from otel_lightning.collector.store import Store, StoreLike, opened, statement
from otel_lightning.collector.store.sql_text import Value, literal


def read(store: Store, package: str, name: str, **values: Value) -> pl.DataFrame:
    """Run the statement `sql/<name>.sql` of a package and return its rows.

    Args:
        store: An open store.
        package: The caller's `__package__`.
        name: Name of the file, for example `arms` or `completions`.
        values: One value for each placeholder `$name` in the file.
    """
    return pl.DataFrame(store.query(statement(package, name, **values)))


def number(store: Store, query: str) -> int:
    """Run a SELECT that returns one number."""
    return int(store.query(query).column(0)[0].as_py())


def append(store: Store, table: str, frame: pl.DataFrame) -> None:
    """Append a few rows to a table, written as SQL literals.

    `Store.insert` is for many rows: registering an Arrow table with DuckDB imports pandas where it
    is installed, which takes longer than a short command.
    """
    for row in frame.iter_rows(named=True):
        values = ", ".join(f'{literal(_plain(value))} AS "{name}"' for name, value in row.items())
        store.execute(f"INSERT INTO {table} BY NAME SELECT {values}")


def _plain(value: object) -> Value:
    return value if value is None or isinstance(value, int | float) else str(value)


def arrow(frame: pl.DataFrame) -> pa.Table:
    """Convert a frame to the oldest Arrow types, which every reader supports."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def scan(store: StoreLike, query: str, order: str) -> pl.LazyFrame:
    """Scan a SELECT lazily: polars reads only the columns that the query uses.

    Args:
        store: Path of a store, which is opened for each read; or an open store, which must stay
            open until the frame is collected.
        query: A SELECT.
        order: The expressions after ORDER BY.
    """

    def rows(
        columns: list[str] | None, predicate: pl.Expr | None, count: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        selected = ", ".join(f'"{column}"' for column in columns) if columns else "*"
        with opened(store, read_only=True) as source:
            # Line breaks around the query, which may end in a comment.
            ordered = f"SELECT {selected} FROM (\n{query}\n) ORDER BY {order}"
            frame = pl.DataFrame(source.query(ordered))
        frame = frame if predicate is None else frame.filter(predicate)
        yield frame if count is None else frame.head(count)

    with opened(store, read_only=True) as source:
        schema = pl.DataFrame(source.query(f"SELECT * FROM (\n{query}\n) LIMIT 0")).schema
    return register_io_source(rows, schema=schema)
