"""Read the store into polars frames by the statements beside their users, in `sql`."""

import polars as pl
import pyarrow as pa

from otel_lightning.collector.store import Store, statement
from otel_lightning.collector.store.sql_text import Value


def read(store: Store, package: str, name: str, **values: Value) -> pl.DataFrame:
    """Answer the statement `sql/<name>.sql` of a package, with its values filled in.

    Args:
        store: An open store.
        package: The asker's `__package__`.
        name: Of the file, for example `arms` or `completions`.
        values: One for each `$name` in the file.
    """
    return pl.DataFrame(store.query(statement(package, name, **values)))


def number(store: Store, query: str) -> int:
    """Answer a SELECT that gives one number."""
    return int(store.query(query).column(0)[0].as_py())


def arrow(frame: pl.DataFrame) -> pa.Table:
    """Turn a frame into the plainest Arrow types, which every reader takes."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
