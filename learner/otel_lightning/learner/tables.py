"""What the learner reads from the store, as polars frames; the statements lie in `sql/`."""

from importlib import resources

import polars as pl
import pyarrow as pa

from otel_lightning.collector.store import Store


def read(store: Store, name: str) -> pl.DataFrame:
    """Answer the statement `sql/<name>.sql`.

    Args:
        store: An open store.
        name: Of the file, for example `arms` or `completions`.
    """
    return pl.DataFrame(store.query(statement(name)))


def statement(name: str) -> str:
    """Return the text of `sql/<name>.sql`."""
    file = resources.files("otel_lightning.learner").joinpath("sql", f"{name}.sql")
    return file.read_text(encoding="utf-8")


def number(store: Store, query: str) -> int:
    """Answer a SELECT that gives one number."""
    return int(store.query(query).column(0)[0].as_py())


def arrow(frame: pl.DataFrame) -> pa.Table:
    """Turn a frame into the plainest Arrow types, which every reader takes."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
